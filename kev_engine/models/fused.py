"""A decoder layer, its attention and its feed-forward with fewer operators, as forwards for the modules they belong to.

`can_build` only says whether a module has the parts. Whether the forward computes what the module computes is not
known here; prepare.py tries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu

from kev_engine.models.products import Joined
from kev_engine.native.kernels import Kernels

QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
Forward = Callable[..., Any]


class FusedAttention:
    """Query, key and value in one product, query and key rotated together; then the model's attention function.

    `constants` are the keywords that the module hands to its attention function, as recorded from a call.
    """

    def __init__(self, module: Any, constants: Mapping[str, Any], kernels: Kernels | None) -> None:
        self.module = module
        self.original: Forward = module.forward
        self.constants = constants
        self.head_dim = int(module.head_dim)
        self.joined = Joined({name: getattr(module, name) for name in QKV}, kernels)
        heads = [part.stop // self.head_dim for part in self.joined.parts.values()]
        self.num_query, self.num_rotated = heads[0], heads[1]
        self.kernels = kernels
        self.norms = (module.q_norm, module.k_norm) if hasattr(module, "q_norm") else None
        module.qkv_proj = self.joined

    @staticmethod
    def can_build(module: nn.Module) -> bool:
        """Whether the module has the projections, in one piece a head."""
        parts = {name: getattr(module, name, None) for name in QKV}
        return Joined.can_join(parts) and isinstance(getattr(module, "o_proj", None), nn.Linear) and all(
            part.out_features % getattr(module, "head_dim", 0.5) == 0 for part in parts.values()  # type: ignore[union-attr]
        )

    def __call__(
        self, hidden_states: torch.Tensor, position_embeddings: Any = None, attention_mask: Any = None,
        cache: Any = None, **keywords: Any,
    ) -> tuple[torch.Tensor, None]:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        module = self.module
        attend = ALL_ATTENTION_FUNCTIONS.get(module.config._attn_implementation)
        if cache is not None or attend is None:
            # transformers' own cache, or the eager attention, which only the original knows.
            given = {"position_embeddings": position_embeddings, "attention_mask": attention_mask, "cache": cache}
            return self.original(hidden_states, **given, **keywords)  # type: ignore[no-any-return]
        batch, num_tokens, _ = hidden_states.shape
        heads = module.qkv_proj(hidden_states).view(batch, num_tokens, -1, self.head_dim)
        rotated, value = heads[:, :, : self.num_rotated], heads[:, :, self.num_rotated :]
        if self.norms is not None:
            query, key = rotated[:, :, : self.num_query], rotated[:, :, self.num_query :]
            rotated = torch.cat([self.norms[0](query), self.norms[1](key)], dim=2)
        cos, sin = position_embeddings
        rotated = rotate(rotated, cos, sin, self.kernels).transpose(1, 2)  # [B, Hq + Hkv, T, D]
        out, _ = attend(
            module, rotated[:, : self.num_query], rotated[:, self.num_query :], value.transpose(1, 2), attention_mask,
            **self.constants, **keywords,
        )
        return module.o_proj(out.reshape(batch, num_tokens, -1)), None


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, kernels: Kernels | None = None) -> torch.Tensor:
    """RoPE (Su et al. 2021, arXiv:2104.09864), halves rotated: `x` `[B, T, H, D]`, `cos` and `sin` `[B, T, D]`."""
    if kernels is not None and len(x) == len(cos) == 1 and x.shape[-1] == cos.shape[-1]:
        return kernels.rotate(x[0], cos[0], sin[0])[None]
    half = x.shape[-1] // 2
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-1)
    out[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return out


class FusedFeedForward:
    """`down(act(gate(x)) · up(x))` with gate and up in one product."""

    def __init__(self, module: Any, kernels: Kernels | None) -> None:
        self.module = module
        self.width = int(module.gate_proj.out_features)
        module.gate_up_proj = Joined({name: getattr(module, name) for name in GATE_UP}, kernels)
        self.kernels = kernels if _is_silu(module.act_fn) else None

    @staticmethod
    def can_build(module: nn.Module) -> bool:
        """Whether the module has the projections and an activation."""
        parts = {name: getattr(module, name, None) for name in GATE_UP}
        return Joined.can_join(parts) and callable(getattr(module, "act_fn", None)) and isinstance(
            getattr(module, "down_proj", None), nn.Linear
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        module = self.module
        both = module.gate_up_proj(x)
        if self.kernels is not None:
            gated = self.kernels.gate(both)
        else:
            gated = module.act_fn(both[..., : self.width]).mul_(both[..., self.width :])
        out: torch.Tensor = module.down_proj(gated)
        return out


LAYER = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


class FusedLayer:
    """`h = x + attention(norm(x))`, then `h + mlp(norm(h))`, its four parts called without what surrounds a module."""

    def __init__(self, module: Any) -> None:
        self.module = module

    @staticmethod
    def can_build(module: nn.Module) -> bool:
        """Whether the module has these parts and no other."""
        return {name for name, _ in module.named_children()} == set(LAYER)

    def __call__(self, hidden_states: torch.Tensor, **keywords: Any) -> torch.Tensor:
        module = self.module
        mixed, _ = module.self_attn.forward(hidden_states=module.input_layernorm.forward(hidden_states), **keywords)
        mixed = hidden_states + mixed
        out: torch.Tensor = mixed + module.mlp.forward(module.post_attention_layernorm.forward(mixed))
        return out


def _is_silu(activation: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether this activation is SiLU, by what it gives."""
    x = torch.linspace(-30, 30, 1001)
    return torch.equal(activation(x), silu(x))
