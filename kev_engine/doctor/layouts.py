"""Which segments each source describes: the intervals meant, positions, cu_seqlens, segment numbers, the mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from kev_engine.doctor.batch import Batch
from kev_engine.doctor.cells import Cells, overlay
from kev_engine.doctor.fields import IntArray
from kev_engine.isolation.layout import PackedLayout, pack
from kev_engine.isolation.mask import run_arrays


@dataclass(frozen=True, eq=False)
class Segmentation:
    """A layout whose pieces carry the segment numbers of their source; −1 marks tokens outside every segment.

    `source` names where it comes from: `lengths`, `segments`, `cu_seqlens`, `position_ids`, `attention_mask`, `total`.
    """

    layout: PackedLayout
    names: tuple[int, ...]
    source: str

    @property
    def num_tokens(self) -> int:
        return self.layout.num_tokens

    @cached_property
    def owner(self) -> IntArray:
        """`[T]`: the segment of each token."""
        return np.repeat(np.asarray(self.names, dtype=np.int64), self.layout.lengths)

    @cached_property
    def intervals(self) -> dict[int, tuple[int, int]]:
        """Half-open interval of each segment that has tokens, by number, in the order of the row."""
        return {name: interval for name, interval in zip(self.names, self.layout.intervals, strict=True)
                if name >= 0 and interval[0] < interval[1]}

    @cached_property
    def piece(self) -> dict[int, int]:
        """The index in `layout` of each segment."""
        return {name: index for index, name in enumerate(self.names) if name >= 0}

    def visible(self, window: int | None = None) -> Cells:
        """The cells the rule allows."""
        return Cells.from_runs(self.num_tokens, self.num_tokens, *run_arrays(self.layout, window))

    def related(self, window: int | None = None) -> Cells:
        """The cells of a reader's own segment and its ancestors, in both directions."""
        return Cells.from_runs(self.num_tokens, self.num_tokens, *run_arrays(self.layout, window, both_ways=True))

    def own(self) -> Cells:
        """The cells inside a reader's own segment."""
        alone = PackedLayout(self.layout.lengths, (None,) * self.layout.num_segments)
        return Cells.from_runs(self.num_tokens, self.num_tokens, *run_arrays(alone, both_ways=True))


def from_intervals(intervals: Sequence[tuple[int, int]], parents: Sequence[int | None] | None, total: int,
                   source: str) -> Segmentation:
    """Segments at these intervals in a row of `total` tokens; what lies between them belongs to nobody."""
    order = sorted(range(len(intervals)), key=lambda index: (intervals[index], index))
    lengths: list[int] = []
    names: list[int] = []
    place = 0
    for index in order:
        start, end = intervals[index]
        if start > place:
            lengths.append(start - place)
            names.append(-1)
        lengths.append(end - start)
        names.append(index)
        place = max(place, end)
    if total > place:
        lengths.append(total - place)
        names.append(-1)
    piece = {name: index for index, name in enumerate(names) if name >= 0}
    up: list[int | None] = []
    for name in names:
        parent = parents[name] if parents is not None and name >= 0 else None
        up.append(None if parent is None else piece[parent])
    return Segmentation(pack(lengths, up), tuple(names), source)


def from_borders(borders: Sequence[int], total: int, source: str) -> Segmentation:
    """Segments between rising borders."""
    return from_intervals(list(pairwise(borders)), None, total, source)


def position_borders(positions: IntArray) -> list[int]:
    """Where a consumer that derives segments from positions cuts: wherever a position is not its neighbour plus one."""
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    return [0, *(int(cut) for cut in cuts), len(positions)]


def intended(batch: Batch, total: int) -> Segmentation | None:
    """The segments the person gave, or None where none were given or they do not fit the row."""
    if batch.segments is not None:
        intervals: list[tuple[int, int]] = list(batch.segments)
    elif batch.lengths is not None:
        borders = np.cumsum([0, *batch.lengths]).tolist()
        intervals = list(pairwise(borders))
    else:
        return None
    if max(end for _, end in intervals) > total:
        return None
    return from_intervals(intervals, batch.parents, total, "segments" if batch.segments is not None else "lengths")


def block_borders(seen: Cells) -> list[int] | None:
    """The borders of a mask that is exactly causal blocks, or None. A mask of one-token blocks only says nothing."""
    if seen.num_queries != seen.num_keys or len(seen.starts) != seen.num_queries:
        return None
    rows, firsts, lasts = seen.run_rows, seen.run_firsts, seen.run_lasts
    if (lasts != rows + 1).any():
        return None
    borders = [*np.flatnonzero(firsts == rows).tolist(), seen.num_queries]
    if borders[0] != 0 or len(borders) == seen.num_queries + 1 > 2:
        return None
    blocks = from_borders(borders, seen.num_queries, "attention_mask")
    return borders if blocks.visible().same(seen) else None


def disagreement(one: Cells, other: Cells, live: np.ndarray) -> int:
    """How many cells two sources judge differently, in the rows that count."""
    both = overlay(one.num_queries, one.num_keys, {"one": one, "other": other})
    return both.select("one", without="other", rows=live).count + both.select("other", without="one", rows=live).count
