"""The rule of visibility. It is stated once, in `visible`; everything else here is derived from it.

    key j is visible to query i  ⇔  (segment(j) = segment(i)  or  segment(j) is an ancestor of segment(i))
                                     and  position(j) ≤ position(i)
                                     and  position(i) − position(j) < window, where a window is set

Positions count inside a segment's own story, ancestors first, so this one line is causal AND block-diagonal AND shared
prefix, for prefill, chunks and decode alike, in whatever order the tokens lie in the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kev_engine.isolation.layout import IntArray, PackedLayout
from kev_engine.isolation.plan import StepPlan

if TYPE_CHECKING:
    import torch

BoolArray = npt.NDArray[np.bool_]
Run = tuple[int, int]


def visible(related: Any, query_position: Any, key_position: Any, window: int | None = None) -> Any:
    """Whether the key may be read, elementwise over numpy arrays or torch tensors that broadcast.

    `related` is true where the key's segment is the query's own or one of its ancestors.
    """
    allowed = related & (key_position <= query_position)
    if window is not None:
        allowed = allowed & (query_position - key_position < window)
    return allowed


def relations(layout: PackedLayout) -> BoolArray:
    """`[S, S]` bool: entry (i, j) is true where segment j is segment i or one of its ancestors."""
    table = np.eye(layout.num_segments, dtype=np.bool_)
    for segment, parent in enumerate(layout.parents):
        if parent is not None:
            table[segment] |= table[parent]
    return table


def dense(layout: PackedLayout, window: int | None = None) -> BoolArray:
    """`[T, T]` bool: entry (i, j) is true where query i may read key j. The slow form that defines correct."""
    related = relations(layout)[layout.segment_ids][:, layout.segment_ids]
    positions = layout.position_ids
    allowed: BoolArray = visible(related, positions[:, None], positions[None, :], window)
    return allowed


def dense_step(plan: StepPlan, window: int | None = None) -> BoolArray:
    """`[T, K]` bool: which key of the step each new token may read.

    A sequence's table names its ancestors' keys and its own and nobody else's, so related means: in my own table.
    """
    related = plan.segment_ids[:, None] == plan.key_sequences[None, :]
    allowed: BoolArray = visible(related, plan.story_position_ids[:, None], plan.key_positions[None, :], window)
    return allowed


def runs_of_row(layout: PackedLayout, row: int, window: int | None = None) -> list[Run]:
    """The keys that query `row` may read, as half-open runs along the row, ascending and joined where they touch."""
    position = int(layout.position_ids[row])
    runs: list[Run] = []
    for segment in layout.lineage(int(layout.segment_ids[row])):
        start, end = layout.intervals[segment]
        first_position = layout.position_starts[segment]
        last = min(end, start + position - first_position + 1)
        first = start if window is None else max(start, start + position - window + 1 - first_position)
        if first >= last:
            continue
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return runs


def runs(layout: PackedLayout, window: int | None = None) -> Iterator[list[Run]]:
    """`runs_of_row` for every row in turn: the whole mask in a few integers a row."""
    for row in range(layout.num_tokens):
        yield runs_of_row(layout, row, window)


@dataclass(frozen=True)
class Band:
    """Allowed cells that lie together: rows `[row, row_end)` may read keys `[key, key_end)`.

    With `grows`, `key_end` is that of the first row, and each later row reads one key more.
    """

    row: int
    row_end: int
    key: int
    key_end: int
    grows: bool


def bands(layout: PackedLayout) -> tuple[Band, ...]:
    """The whole mask, exactly, as one band for each segment and each segment of its lineage: O(S × depth).

    An ancestor's story ends before its reader's starts, so all of it is read by every row; a segment reads itself
    causally.
    """
    found: list[Band] = []
    for segment, (start, end) in enumerate(layout.intervals):
        if start == end:
            continue
        for ancestor in layout.lineage(segment)[:-1]:
            key, key_end = layout.intervals[ancestor]
            if key < key_end:
                found.append(Band(start, end, key, key_end, grows=False))
        found.append(Band(start, end, start, start + 1, grows=True))
    return tuple(found)


def run_arrays(
    layout: PackedLayout, window: int | None = None, both_ways: bool = False
) -> tuple[IntArray, IntArray, IntArray]:
    """The whole mask as arrays `(rows, firsts, lasts)`: one half-open run of keys a row and segment it reads, by row.

    The same runs as `runs`, not joined where they touch; O(T × depth) without a loop over rows. With `both_ways` the
    order of positions is left out, as in an encoder: a row then reads every key it is related to.
    """
    starts, ends = layout.cu_seqlens[:-1].astype(np.int64), layout.cu_seqlens[1:].astype(np.int64)
    story = np.asarray(layout.position_starts, dtype=np.int64)
    parents = np.asarray([-1 if parent is None else parent for parent in layout.parents], dtype=np.int64)
    rows, segment = np.arange(layout.num_tokens, dtype=np.int64), layout.segment_ids.astype(np.int64)
    found: list[tuple[IntArray, IntArray, IntArray]] = []
    while rows.size:
        first, last = starts[segment], ends[segment]
        # A key at story position p of this segment lies at p + shift in the row.
        shift = first - story[segment]
        here = layout.position_ids[rows] + shift
        if not both_ways:
            last = np.minimum(last, here + 1)
        if window is not None:
            first = np.maximum(first, here - window + 1)
        some = first < last
        found.append((rows[some], first[some], last[some]))
        segment = parents[segment]
        rows, segment = rows[segment >= 0], segment[segment >= 0]
    if not found:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    all_rows, firsts, lasts = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((firsts, all_rows))
    return all_rows[order], firsts[order], lasts[order]


def count_allowed(layout: PackedLayout, window: int | None = None) -> int:
    """The number of allowed cells, by interval arithmetic: O(S × depth), no cell is visited."""
    total = 0
    for segment, length in enumerate(layout.lengths):
        start = layout.position_starts[segment]
        # With i own keys behind it, a query at story position p reads min(p + 1, window) keys.
        total += _sum_clipped(start + 1, start + length, window)
    return total


def _sum_clipped(first: int, last: int, ceiling: int | None) -> int:
    """Sum of min(n, ceiling) for n = first … last."""
    if last < first:
        return 0
    if ceiling is None or last <= ceiling:
        return (first + last) * (last - first + 1) // 2
    if first >= ceiling:
        return ceiling * (last - first + 1)
    return _sum_clipped(first, ceiling, None) + ceiling * (last - ceiling)


def additive(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as a tensor to add to scores: 0 where allowed, the dtype's finite minimum where not.

    Never −inf, so that a row that may read nothing (padding) gives a number and not NaN.
    """
    import torch

    blocked = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=allowed.device)
    return torch.where(allowed, torch.zeros((), dtype=dtype, device=allowed.device), blocked)
