"""The oracle: one dense mask over all keys of the step and plain matrix products. Slow, and by definition right.

It computes what every other backend is compared with, in fp32 whatever the model's dtype, and it executes the faults
that can be injected.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from kev_engine.attention.base import LayerFacts, missing_capabilities
from kev_engine.cache.storage import KeyRange, KVShape, KVStorage, key_range
from kev_engine.isolation.faults import Fault
from kev_engine.isolation.mask import additive, dense_step
from kev_engine.isolation.plan import StepPlan


@dataclass(frozen=True, eq=False)
class DenseState:
    """`slots` `[K]`: where the keys of all sequences lie, one sequence behind the other; `rows`: each one's queries.

    `bias` `[T, K]` is added to the scores, `readable` `[S, K]` says which keys any query of a sequence may read; both
    by window.
    """

    slots: torch.Tensor
    rows: list[slice]
    bias: dict[int | None, torch.Tensor]
    readable: dict[int | None, torch.Tensor]


class DenseBackend:
    """Attention by a full score matrix. `fault` breaks the mask on purpose."""

    name = "dense"
    capabilities = frozenset({"window", "softcap", "sinks"})
    page_tokens = 1

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        return missing_capabilities(self, needs)

    def lone_rows(self, state: DenseState, window: int | None) -> None:
        return None

    def prepare(self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]) -> DenseState:
        device = storage.keys[0].device
        slots = torch.cat([
            key_range(plan.block_tables[index].tolist(), 0, chunk.num_keys, plan.block_size, device).indexes(device)
            for index, chunk in enumerate(plan.chunks)
        ])
        rows = [slice(start, end) for start, end in pairwise(plan.cu_seqlens_q.tolist())]
        bias: dict[int | None, torch.Tensor] = {}
        readable: dict[int | None, torch.Tensor] = {}
        for window in windows:
            right = dense_step(plan, window)
            cells = right if self.fault is None else self.fault.broken_cells(plan, right)
            allowed = torch.from_numpy(cells).to(device)
            bias[window] = additive(allowed, torch.float32)
            if self.fault is not None and self.fault.adds_mask:
                bias[window] = torch.from_numpy(right).to(device, torch.float32)
            readable[window] = torch.stack([allowed[mine].any(dim=0) for mine in rows])
        return DenseState(slots, rows, bias, readable)

    def attend(self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: DenseState) -> torch.Tensor:
        _, num_heads, num_tokens, head_dim = query.shape
        groups = num_heads // storage.shape.num_kv_heads
        stored = storage.read(layer.index, KeyRange(0, 0, state.slots))
        keys, values = (part.repeat_interleave(groups, 1).transpose(0, 1) for part in stored)  # [Hq, K, D]
        out = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
        for rows, readable in zip(state.rows, state.readable[layer.window], strict=True):
            # A hidden key is zeroed: even at weight zero, a NaN of somebody else would poison my sum.
            key = keys.masked_fill(~readable[:, None], 0)
            value = values.masked_fill(~readable[:, None], 0)
            scores = query[0, :, rows].float() @ key.float().transpose(1, 2) * layer.scaling  # [Hq, Q, K]
            if layer.softcap is not None:
                scores = layer.softcap * torch.tanh(scores / layer.softcap)
            scores = scores + state.bias[layer.window][rows]
            if layer.sinks is not None:
                sinks = layer.sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
                scores = torch.cat([scores, sinks], dim=-1)
            weights = torch.softmax(scores, dim=-1)[..., : len(state.slots)]
            out[rows] = (weights @ value.float()).transpose(0, 1).to(out.dtype)
        return out[None]
