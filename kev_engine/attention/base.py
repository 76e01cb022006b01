"""AttentionBackend: the contract, and the one function through which a transformers model reaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.plan import StepPlan
from kev_engine.native.kernels import Kernels
from kev_engine.native.layers import LoneRows

ATTN_IMPLEMENTATION = "kev"
"""The name under which `attention_forward` stands in transformers' AttentionInterface."""


@dataclass(frozen=True)
class LayerFacts:
    """What a backend must know of one attention layer: its window in tokens (None = whole story) and extras."""

    index: int
    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class AttentionBackend(Protocol):
    """Executes step plans. `prepare` once a step, `attend` once a layer; nothing is recomputed per layer."""

    name: str
    capabilities: frozenset[str]
    """Of "window", "softcap", "sinks": what a model may need beyond plain attention."""
    page_tokens: int
    """A block must hold a multiple of this many tokens."""

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        """Why this backend cannot serve such a model here, as a clause without a full stop, or None."""

    def prepare(self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]) -> Any:
        """The backend's state for one step: masks, indexes, ranges, for each distinct window."""

    def attend(
        self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: Any
    ) -> torch.Tensor:
        """Attention of the new tokens, `query` `[1, Hq, T, D]`, over keys already in `storage`: `[1, T, Hq, D]`."""

    def lone_rows(self, state: Any, window: int | None) -> LoneRows | None:
        """What each row reads where `attend` would do for the whole step what `Kernels.attend` does, else None: a layer
        may then do it between its own products."""


def missing_capabilities(backend: AttentionBackend, needs: frozenset[str]) -> str | None:
    """The sentence that says which of the model's needs this backend does not meet, or None."""
    missing = sorted(needs - backend.capabilities)
    return f"backend {backend.name!r} does not compute {' and '.join(missing)}" if missing else None


@dataclass(frozen=True, eq=False)
class Execution:
    """One step under way: what `plan=` carries through the model's forward to every attention layer.

    `rows_read` `[R]`: the rows that somebody reads behind the last layer; None for all. `on_layer` is told the number
    of each layer whose attention begins.
    """

    backend: AttentionBackend
    storage: KVStorage
    slots: torch.Tensor
    state: Any
    rows_read: torch.Tensor | None = None
    on_layer: Callable[[int], None] | None = None

    def lone_rows(self, window: int | None) -> LoneRows | None:
        """What each row reads, where the layer under way may store and attend by itself."""
        return None if self.on_layer is not None else self.backend.lone_rows(self.state, window)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    plan: Execution | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """Store the new keys and values, then let the step's backend attend: `[1, T, Hq, D]`.

    `query` is `[1, Hq, T, D]`, `key` and `value` `[1, Hkv, T, D]`. A forward without a plan is a mistake of the caller
    and never falls back to another attention.
    """
    if plan is None:
        raise RuntimeError("attention 'kev' was reached without a step plan; call the model through ModelRunner.run")
    assert attention_mask is None, "the plan decides who reads whom; no second mask may arrive"
    index = int(module.layer_idx)  # type: ignore[arg-type]
    if plan.on_layer is not None:
        plan.on_layer(index)
    plan.storage.write(index, plan.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    layer = LayerFacts(index, scaling or query.shape[-1] ** -0.5, sliding_window, softcap, s_aux)
    return plan.backend.attend(layer, query, plan.storage, plan.state), None


def register() -> None:
    """Make `attn_implementation="kev"` known to transformers; calling it again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTN_IMPLEMENTATION, attention_forward)


def backends(kernels: Kernels | None = None) -> Mapping[str, AttentionBackend]:
    """The backends that can be named, each by its name, the one that is preferred where it can serve first."""
    from kev_engine.attention.dense import DenseBackend
    from kev_engine.attention.flash import FlashBackend
    from kev_engine.attention.segment import SegmentBackend

    return {backend.name: backend for backend in (FlashBackend(), SegmentBackend(kernels), DenseBackend())}
