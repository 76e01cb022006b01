"""A decoder layer, its attention and its feed-forward with fewer operators, as forwards for the modules they belong to.

`can_build` only says whether a module has the parts. Whether the forward computes what the module computes is not
known here; prepare.py tries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu

from kev_engine.models.norm import OneStepNorm
from kev_engine.models.products import Joined
from kev_engine.native.kernels import Kernels
from kev_engine.native.layers import (
    NO_ADAPTERS,
    Adapting,
    LayerAdapters,
    LayerKernel,
    LayerWeights,
    Norm,
    Weights,
    layer_adapters,
)

QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
Forward = Callable[..., Any]


class FusedAttention:
    """Query, key and value in one product, query and key rotated together; then the model's attention function.

    `constants` are the keywords that the module hands to its attention function, as recorded from a call.
    """

    def __init__(self, module: Any, constants: Mapping[str, Any], kernels: Kernels | None) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        self.module = module
        self.original: Forward = module.forward
        self.functions = ALL_ATTENTION_FUNCTIONS
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
        module = self.module
        if not self.is_own(cache):
            given = {"position_embeddings": position_embeddings, "attention_mask": attention_mask, "cache": cache}
            return self.original(hidden_states, **given, **keywords)  # type: ignore[no-any-return]
        batch, num_tokens, _ = hidden_states.shape
        heads = module.qkv_proj(hidden_states).view(batch, num_tokens, -1, self.head_dim)
        rotated = heads[:, :, : self.num_rotated]
        if self.norms is not None:
            query, key = rotated[:, :, : self.num_query], rotated[:, :, self.num_query :]
            rotated = torch.cat([self.norms[0](query), self.norms[1](key)], dim=2)
        cos, sin = position_embeddings
        rotated = rotate(rotated, cos, sin, self.kernels)
        return module.o_proj(self.attend(heads, rotated, attention_mask, keywords)), None

    def is_own(self, cache: Any) -> bool:
        """Whether the attention is not transformers' own: with its cache, or eager, which only the original knows."""
        return cache is None and self._function() is not None

    def attend(
        self, heads: torch.Tensor, rotated: torch.Tensor, attention_mask: Any, keywords: Mapping[str, Any]
    ) -> torch.Tensor:
        """What the attention function gives, `[B, T, Hq · D]`, for the values among `heads` `[B, T, Hq + 2 Hkv, D]` and
        queries and keys, `rotated` `[B, T, Hq + Hkv, D]`."""
        both, value = rotated.transpose(1, 2), heads[:, :, self.num_rotated :].transpose(1, 2)
        out, _ = self._function()(
            self.module, both[:, : self.num_query], both[:, self.num_query :], value, attention_mask,
            **self.constants, **keywords,
        )
        return out.flatten(2)  # type: ignore[no-any-return]

    def _function(self) -> Any:
        return self.functions.get(self.module.config._attn_implementation)


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
    """`h = x + attention(norm(x))`, then `h + mlp(norm(h))`, its four parts called without what surrounds a module.

    With kernels, all that stands before the attention is one call and all that stands behind it another, wherever the
    parts are fused as well and nobody but adapters has hooked a product; where the step's backend says that all rows
    are lone tokens, the layer is one call. The last layer of a step computes what stands behind its attention for the
    rows that somebody reads, and gives zeros for the others.
    """

    def __init__(self, module: Any, kernels: Kernels | None) -> None:
        self.module = module
        self.attention, self.mlp = module.self_attn, module.mlp
        index, config = getattr(self.attention, "layer_idx", None), getattr(self.attention, "config", None)
        self.is_last = index is not None and index + 1 == getattr(config, "num_hidden_layers", None)
        self.kernels = kernels
        self._kernel: LayerKernel | None = None

    @staticmethod
    def can_build(module: nn.Module) -> bool:
        """Whether the module has these parts and no other."""
        return {name for name, _ in module.named_children()} == set(LAYER)

    def __call__(
        self, hidden_states: torch.Tensor, attention_mask: Any = None, position_embeddings: Any = None,
        cache: Any = None, **keywords: Any,
    ) -> torch.Tensor:
        module = self.module
        plan: Any = keywords.get("plan")
        kernel, adapters = self._kernel_for(hidden_states, cache, plan)
        if kernel is not None:
            x, (cos, sin) = hidden_states[0].contiguous(), (part[0].contiguous() for part in position_embeddings)
            lone = plan.lone_rows(self.attention.forward.constants.get("sliding_window")) if plan is not None else None
            if lone is not None:
                assert attention_mask is None, "the plan decides who reads whom; no second mask may arrive"
                keys, values = (kept[self.attention.layer_idx] for kept in (plan.storage.keys, plan.storage.values))
                # The same default as attention_forward's.
                scaling = self.attention.forward.constants.get("scaling") or self.attention.forward.head_dim ** -0.5
                return kernel.decode(x, cos, sin, keys, values, plan.slots, lone, scaling, adapters)[None]
            heads, rotated = kernel.enter(x, cos, sin, adapters)
            mixed = self.attention.forward.attend(heads[None], rotated[None], attention_mask, keywords)[0]
            rows = self._rows_read(len(x), plan)
            if rows is None:
                return kernel.leave(x, mixed.contiguous(), adapters)[None]
            out = torch.zeros_like(x)
            out[rows] = kernel.leave(x[rows], mixed[rows], adapters.of(rows))
            return out[None]
        given = {"attention_mask": attention_mask, "position_embeddings": position_embeddings, "cache": cache}
        normed = module.input_layernorm.forward(hidden_states)
        mixed = hidden_states + self.attention.forward(hidden_states=normed, **given, **keywords)[0]
        return mixed + self.mlp.forward(module.post_attention_layernorm.forward(mixed))  # type: ignore[no-any-return]

    def _rows_read(self, num_rows: int, plan: Any) -> torch.Tensor | None:
        """The rows of the last layer that somebody reads; None for all of them."""
        rows = plan.rows_read if self.is_last and plan is not None else None
        return None if rows is None or len(rows) == num_rows else rows

    def _kernel_for(self, x: torch.Tensor, cache: Any, plan: Any) -> tuple[LayerKernel | None, LayerAdapters]:
        """The kernel that can take this call, and the adapters of its four products; None if its parts must."""
        attention, mlp = self.attention.forward, self.mlp.forward
        if (
            self.kernels is None or len(x) != 1 or x.shape[1] > self.kernels.most_rows
            or not isinstance(attention, FusedAttention) or (plan is None and not attention.is_own(cache))
            or not isinstance(mlp, FusedFeedForward) or mlp.kernels is None
        ):
            return None, NO_ADAPTERS
        # Not by their names: a module looks for those in three places.
        inner, outer = self.attention._modules, self.mlp._modules
        products = inner["qkv_proj"], inner["o_proj"], outer["gate_up_proj"], outer["down_proj"]
        adapters = _adapters(products, x.shape[1])
        if adapters is None:
            return None, NO_ADAPTERS
        if self._kernel is None or any(
            product.weight is not known.weight
            for product, known in zip(products, self._kernel.weights.products, strict=True)
        ):
            self._kernel = self._build(products)
        return self._kernel, adapters

    def _build(self, products: Any) -> LayerKernel | None:
        """The kernel over the weights as they are now, or None where a part is not what it is made for."""
        module = self.module
        head_norms = self.attention.forward.norms
        norms = [module.input_layernorm, module.post_attention_layernorm, *(head_norms or ())]
        if not all(isinstance(norm, OneStepNorm) for norm in norms):
            return None
        assert self.kernels is not None
        return LayerKernel(self.kernels, LayerWeights(
            tuple(Weights(product.weight, product.bias, product.groups) for product in products),
            tuple(Norm(norm.weight, norm.variance_epsilon) for norm in norms), self.attention.forward.head_dim,
        ))


def _adapters(products: Sequence[nn.Module], num_rows: int) -> LayerAdapters | None:
    """The adapters of each product in this step; None where one has a hook that only its module can serve."""
    if not any(product._forward_hooks or product._forward_pre_hooks for product in products):
        return NO_ADAPTERS
    found: list[Adapting | None] = []
    for product in products:
        hooks = [*product._forward_hooks.values(), *product._forward_pre_hooks.values()]
        for hook in hooks:
            if len(hooks) > 1 or not isinstance(hook, Adapting) or hook.spans is None or len(hook.spans) != num_rows:
                return None
        found.append(hooks[0] if hooks else None)  # type: ignore[arg-type]
    return layer_adapters(found)


def _is_silu(activation: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether this activation is SiLU, by what it gives."""
    x = torch.linspace(-30, 30, 1001)
    return torch.equal(activation(x), silu(x))
