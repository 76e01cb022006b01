"""The CPU default: one exact call a sequence, over exactly the keys that sequence may read.

No mask holds the sequences apart; a sequence's keys are all that its call is given. A call over a contiguous run of
blocks reads the cache in place. With the compiled kernels, the single tokens at the head of a step (decode rows) are
one call together, which is given the slots that each of them reads and touches no other; without them every call is
torch's scaled-dot-product attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from kev_engine.attention.base import LayerFacts, missing_capabilities
from kev_engine.cache.storage import KeyRange, KVShape, KVStorage, key_range
from kev_engine.isolation.mask import visible
from kev_engine.isolation.plan import Chunk, StepPlan
from kev_engine.native.kernels import Kernels
from kev_engine.native.layers import LoneRows


@dataclass(frozen=True, eq=False)
class Reader:
    """One sequence's call: its rows of the step, its keys, and how causality reaches torch's attention.

    `is_causal`: its own causal flag is the rule (all keys are new and no window cuts them). `bias`: `[Q, K]`, for the
    queries in reverse order. Neither: a single query that may read every key, or the compiled kernel's work.
    """

    first_row: int
    end_row: int
    keys: KeyRange
    is_causal: bool
    bias: torch.Tensor | None


@dataclass(frozen=True, eq=False)
class Readers:
    """Who reads what under one window: rows that the kernel takes together, and one call for each other sequence."""

    lone: LoneRows | None
    single: list[Reader]


class SegmentBackend:
    """Attention by one call a sequence; lone tokens by `kernels`, where there are any."""

    name = "segment"
    capabilities = frozenset({"window"})
    page_tokens = 1

    def __init__(self, kernels: Kernels | None = None) -> None:
        self.kernels = kernels

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        return missing_capabilities(self, needs)

    def prepare(
        self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]
    ) -> dict[int | None, Readers]:
        return {window: self._readers(plan, storage, window) for window in windows}

    def _readers(self, plan: StepPlan, storage: KVStorage, window: int | None) -> Readers:
        device, dtype = storage.device, storage.shape.dtype
        num_lone = 0
        has_kernel = self.kernels is not None and dtype == torch.float32
        if has_kernel and storage.shape.stored == dtype:
            lengths = [chunk.num_new for chunk in plan.chunks]
            num_lone = next((index for index, length in enumerate(lengths) if length > 1), len(lengths))
        single = []
        edges = plan.cu_seqlens_q.tolist()
        for index, chunk in enumerate(plan.chunks[num_lone:], num_lone):
            table = plan.block_tables[index].tolist()
            first = first_key(chunk, window)
            num_keys = chunk.num_keys - first
            keys = key_range(table, first, chunk.num_keys, plan.block_size, device)
            is_masked = chunk.num_new > 1 and not has_kernel
            is_causal = is_masked and num_keys == chunk.num_new and (window is None or num_keys <= window)
            bias = None
            if is_masked and not is_causal:
                bias = causal_bias(chunk.num_new, num_keys, window, dtype, device)
            single.append(Reader(edges[index], edges[index + 1], keys, is_causal, bias))
        return Readers(lone_rows(plan, num_lone, window) if num_lone else None, single)

    def attend(
        self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: dict[int | None, Readers]
    ) -> torch.Tensor:
        readers = state[layer.window]
        outs = []  # each [Q, Hq, D], in the order of the rows
        if readers.lone is not None:
            assert self.kernels is not None
            outs.append(self.kernels.attend(
                query[0, :, : readers.lone.count].transpose(0, 1), storage.keys[layer.index],
                storage.values[layer.index], readers.lone.slots, readers.lone.edges, layer.scaling,
            ))
        outs += [self._attend_one(layer, query, storage, reader) for reader in readers.single]
        return (torch.cat(outs) if len(outs) > 1 else outs[0])[None]

    def lone_rows(self, state: dict[int | None, Readers], window: int | None) -> LoneRows | None:
        readers = state[window]
        return None if readers.single else readers.lone

    def _attend_one(
        self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, reader: Reader
    ) -> torch.Tensor:
        """One sequence's attention, `[Q, Hq, D]`."""
        num_heads, head_dim = query.shape[1], query.shape[3]
        kv_heads = storage.shape.num_kv_heads
        keys, values = storage.read(layer.index, reader.keys)
        key, value = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]  # [1, Hkv, K, D]
        mine = query[:, :, reader.first_row : reader.end_row]  # [1, Hq, Q, D]
        if reader.end_row - reader.first_row == 1:
            # The query heads that share a key head stand in for queries: no key is read twice.
            folded = mine.reshape(1, kv_heads, -1, head_dim)
            read = scaled_dot_product_attention(folded, key, value, scale=layer.scaling)
            return read.reshape(1, num_heads, head_dim)
        if not reader.is_causal and reader.bias is None:
            assert self.kernels is not None
            return self.kernels.prefill(mine[0].transpose(0, 1), keys, values, layer.window, layer.scaling)
        if reader.bias is not None:
            mine = mine.flip(2)
        read = scaled_dot_product_attention(
            mine, key, value, reader.bias, is_causal=reader.is_causal, scale=layer.scaling,
            enable_gqa=num_heads > kv_heads,
        )
        if reader.bias is not None:
            read = read.flip(2)
        return read[0].transpose(0, 1)


def first_key(chunk: Chunk, window: int | None) -> int:
    """The story position of the first key that any new token of the chunk may read."""
    return 0 if window is None else max(0, chunk.start - window + 1)


def lone_rows(plan: StepPlan, count: int, window: int | None) -> LoneRows:
    """The slots that the first `count` chunks, of one token each, read."""
    slots, edges = [], [0]
    for index, chunk in enumerate(plan.chunks[:count]):
        positions = np.arange(first_key(chunk, window), chunk.num_keys)
        blocks = plan.block_tables[index][positions // plan.block_size].astype(np.int64)
        slots.append(blocks * plan.block_size + positions % plan.block_size)
        edges.append(edges[-1] + len(positions))
    return LoneRows(count, torch.from_numpy(np.concatenate(slots)), torch.tensor(edges))


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
