"""The CUDA backend: the flash-attn package reads the paged cache in place, all sequences of a step in one call.

A sequence's table names its ancestors' blocks and its own, and its new tokens are the last of its story, so causality
counted from the bottom right corner is the rule. Behind a story's last key the kernels read nothing: the scores there
are set to −inf and the values to 0, so a NaN in an unused slot or a foreign block cannot reach a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from kev_engine.attention.base import LayerFacts, missing_capabilities
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.plan import StepPlan

PACKAGE = "flash_attn"
PAGE_TOKENS = 256
DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8
OLDEST_CAPABILITY = (8, 0)
"""CUDA compute capability of Ampere, the first the kernels are built for."""


class FlashKernels(Protocol):
    """The two calls of the package that are used, under its own names."""

    flash_attn_varlen_func: Callable[..., Any]
    flash_attn_with_kvcache: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class FlashState:
    """One step as the kernels take it, int32 on the device.

    `cu_seqlens_q`, `cu_seqlens_k` `[S+1]`; `num_keys` `[S]`, the keys of each sequence; `block_tables`
    `[S, max_blocks]`. `is_decode`: every sequence brings one token, so row s is sequence s.
    """

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    num_keys: torch.Tensor
    block_tables: torch.Tensor
    max_seqlen_q: int
    max_seqlen_k: int
    is_decode: bool


class FlashBackend:
    """Attention by flash-attn 2. `kernels` None means the installed package; `device_type` is where they run."""

    name = "flash"
    capabilities = frozenset({"window", "softcap"})
    page_tokens = PAGE_TOKENS

    def __init__(self, kernels: FlashKernels | None = None, device_type: str = "cuda") -> None:
        self._given = kernels
        self._device_type = device_type

    @property
    def kernels(self) -> FlashKernels:
        """The calls; the package is imported with the first of them."""
        if self._given is None:
            import flash_attn

            self._given = flash_attn
        return self._given

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        missing = missing_capabilities(self, needs)
        if missing is not None:
            return missing
        if device.type != self._device_type:
            return f"backend 'flash' needs a {self._device_type.upper()} device and this one is {device.type}"
        if self._given is None and find_spec(PACKAGE) is None:
            return "backend 'flash' needs the package flash-attn (pip install -r requirements-gpu.txt)"
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST_CAPABILITY:
            return f"backend 'flash' needs an Ampere GPU or newer and this is {torch.cuda.get_device_name(device)}"
        if shape.dtype not in DTYPES:
            return f"backend 'flash' computes in float16 or bfloat16 and not in {str(shape.dtype).partition('.')[2]}"
        if shape.stored != shape.dtype:
            return "backend 'flash' reads keys and values of the model's own dtype and no other --kv-dtype"
        if shape.head_dim > MAX_HEAD_DIM or shape.head_dim % HEAD_DIM_MULTIPLE:
            return (
                f"backend 'flash' takes heads of a multiple of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM} numbers and "
                f"these have {shape.head_dim}"
            )
        return None

    def lone_rows(self, state: Any, window: int | None) -> None:
        return None

    def prepare(self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]) -> FlashState:
        def on_device(array: Any) -> torch.Tensor:
            return torch.from_numpy(array).to(storage.device)

        num_keys = plan.cu_seqlens_k[1:] - plan.cu_seqlens_k[:-1]
        return FlashState(
            on_device(plan.cu_seqlens_q), on_device(plan.cu_seqlens_k), on_device(num_keys),
            on_device(plan.block_tables), max(chunk.num_new for chunk in plan.chunks), int(num_keys.max()),
            is_decode=plan.num_decode == plan.num_sequences,
        )

    def attend(self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: FlashState) -> torch.Tensor:
        keys, values = storage.keys[layer.index], storage.values[layer.index]
        pages = (storage.num_blocks, storage.block_size, *keys.shape[1:])  # [blocks, block_size, Hkv, D]
        key, value = keys.view(pages), values.view(pages)
        rows = query[0].transpose(0, 1)  # [T, Hq, D]
        # The kernels count a window by the tokens before the query, the rule counts the query itself in.
        window = (-1, -1) if layer.window is None else (layer.window - 1, 0)
        softcap = layer.softcap or 0.0
        if state.is_decode:
            read = self.kernels.flash_attn_with_kvcache(
                rows[:, None], key, value, cache_seqlens=state.num_keys, block_table=state.block_tables,
                softmax_scale=layer.scaling, causal=True, window_size=window, softcap=softcap,
            )[:, 0]
        else:
            read = self.kernels.flash_attn_varlen_func(
                rows, key, value, state.cu_seqlens_q, state.cu_seqlens_k, state.max_seqlen_q, state.max_seqlen_k,
                softmax_scale=layer.scaling, causal=True, window_size=window, softcap=softcap,
                block_table=state.block_tables,
            )
        out: torch.Tensor = read[None]  # [1, T, Hq, D]
        return out
