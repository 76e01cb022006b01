"""The CPU default: one exact scaled-dot-product call a sequence, over exactly the keys that sequence may read.

No mask holds the sequences apart; a sequence's keys are all that its call is given. A call over a contiguous run of
blocks reads the cache in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from kev_engine.attention.base import LayerFacts, missing_capabilities
from kev_engine.cache.storage import KeyRange, KVShape, KVStorage, key_range
from kev_engine.isolation.mask import visible
from kev_engine.isolation.plan import StepPlan


@dataclass(frozen=True, eq=False)
class Reader:
    """One sequence's call: its rows of the step, its keys, and how causality reaches the kernel.

    `is_causal`: the kernel's own causal flag is the rule (all keys are new and no window cuts them). `bias`: `[Q, K]`,
    for the queries in reverse order. Neither: a single query that may read every key.
    """

    first_row: int
    end_row: int
    keys: KeyRange
    is_causal: bool
    bias: torch.Tensor | None


class SegmentBackend:
    """Attention by one `scaled_dot_product_attention` call a sequence."""

    name = "segment"
    capabilities = frozenset({"window"})
    page_tokens = 1

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        return missing_capabilities(self, needs)

    def prepare(
        self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]
    ) -> dict[int | None, list[Reader]]:
        return {window: self._readers(plan, storage, window) for window in windows}

    @staticmethod
    def _readers(plan: StepPlan, storage: KVStorage, window: int | None) -> list[Reader]:
        device, dtype = storage.keys[0].device, storage.shape.dtype
        readers = []
        edges = plan.cu_seqlens_q.tolist()
        for index, chunk in enumerate(plan.chunks):
            table = plan.block_tables[index].tolist()
            first = 0 if window is None else max(0, chunk.start - window + 1)
            num_keys = chunk.num_keys - first
            keys = key_range(table, first, chunk.num_keys, plan.block_size, device)
            is_causal = num_keys == chunk.num_new > 1 and (window is None or num_keys <= window)
            reads_all = chunk.num_new == 1
            bias = None if is_causal or reads_all else causal_bias(chunk.num_new, num_keys, window, dtype, device)
            readers.append(Reader(edges[index], edges[index + 1], keys, is_causal, bias))
        return readers

    def attend(
        self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: dict[int | None, list[Reader]]
    ) -> torch.Tensor:
        _, num_heads, num_tokens, head_dim = query.shape
        groups = num_heads // storage.shape.num_kv_heads
        out = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
        for reader in state[layer.window]:
            keys, values = storage.read(layer.index, reader.keys)
            key, value = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]  # [1, Hkv, K, D]
            rows = slice(reader.first_row, reader.end_row)
            mine = query[:, :, rows]  # [1, Hq, Q, D]
            if reader.end_row - reader.first_row == 1:
                # The query heads that share a key head stand in for queries: no key is read twice.
                folded = mine.reshape(1, -1, groups, head_dim)
                read = scaled_dot_product_attention(folded, key, value, scale=layer.scaling)
                out[rows] = read.reshape(1, num_heads, head_dim)
                continue
            if reader.bias is not None:
                mine = mine.flip(2)
            read = scaled_dot_product_attention(
                mine, key, value, reader.bias, is_causal=reader.is_causal, scale=layer.scaling, enable_gqa=groups > 1
            )
            if reader.bias is not None:
                read = read.flip(2)
            out[rows] = read[0].transpose(0, 1)
        return out[None]


def causal_bias(
    num_queries: int, num_keys: int, window: int | None, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The additive mask `[Q, K]` of the last Q of K positions, queries in reverse order, in O(Q + K) memory.

    Who may read whom depends only on the distance between positions. With the queries reversed, cell (i, j) has the
    distance K − 1 − (i + j), so every row is the row above it moved by one: a view of one vector.
    """
    distances_end = num_keys - 1
    positions = torch.arange(num_queries + num_keys - 1, device=device)
    allowed = visible(torch.ones((), dtype=torch.bool, device=device), distances_end, positions, window)
    line = torch.where(allowed, 0.0, float("-inf")).to(dtype)
    return line.as_strided((num_queries, num_keys), (1, 1))
