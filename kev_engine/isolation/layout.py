"""PackedLayout: where each segment of a packed row lies, and where its story starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kev_engine.errors import InvalidField

IntArray = npt.NDArray[np.int64]
SegmentArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PackedLayout:
    """Segments laid one behind the other in a row of T tokens.

    `lengths[k]` is the number of tokens of segment k, `parents[k]` the index of the segment whose tokens segment k may
    also read (and so on upwards), or None. A parent always lies before its children.
    """

    lengths: tuple[int, ...]
    parents: tuple[int | None, ...]

    @property
    def num_segments(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def cu_seqlens(self) -> SegmentArray:
        """Prefix sums of the lengths, `[S+1]` int32, from 0 to T."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)]).astype(np.int32)

    @cached_property
    def intervals(self) -> tuple[tuple[int, int], ...]:
        """Half-open `[start, end)` of each segment in the row."""
        return tuple(pairwise(self.cu_seqlens.tolist()))

    @cached_property
    def position_starts(self) -> tuple[int, ...]:
        """The position of each segment's first token: 0, or where its parent's story ends."""
        starts: list[int] = []
        for parent in self.parents:
            starts.append(0 if parent is None else starts[parent] + self.lengths[parent])
        return tuple(starts)

    @cached_property
    def segment_ids(self) -> SegmentArray:
        """`[T]` int32: the segment of each token."""
        return np.repeat(np.arange(self.num_segments, dtype=np.int32), self.lengths)

    @cached_property
    def position_ids(self) -> IntArray:
        """`[T]` int64: the position of each token inside its own story, ancestors first."""
        offsets = np.asarray(self.position_starts, dtype=np.int64) - self.cu_seqlens[:-1]
        return np.arange(self.num_tokens, dtype=np.int64) + np.repeat(offsets, self.lengths)

    def lineage(self, segment: int) -> tuple[int, ...]:
        """The segment's ancestors, the root first, and the segment itself last."""
        chain = [segment]
        while (parent := self.parents[chain[-1]]) is not None:
            chain.append(parent)
        return tuple(reversed(chain))


def pack(lengths: Sequence[int], parents: Sequence[int | None] | None = None) -> PackedLayout:
    """The layout of segments of these lengths, in this order.

    Raises InvalidField for a length below 0 and for a parent that is not an earlier segment.
    """
    lengths = tuple(int(length) for length in lengths)
    parents = (None,) * len(lengths) if parents is None else tuple(parents)
    if len(parents) != len(lengths):
        raise InvalidField("parents", list(parents), f"it must have one entry for each of the {len(lengths)} segments")
    for index, (length, parent) in enumerate(zip(lengths, parents, strict=True)):
        if length < 0:
            raise InvalidField(f"lengths[{index}]", length, "a segment has at least 0 tokens")
        if parent is not None and not 0 <= parent < index:
            raise InvalidField(f"parents[{index}]", parent, "a parent must be an earlier segment of the row, or null")
    return PackedLayout(lengths, parents)
