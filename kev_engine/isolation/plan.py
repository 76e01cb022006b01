"""StepPlan: everything one forward needs to know, as plain arrays. Backends execute it, the canvas draws it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kev_engine.isolation.layout import IntArray, SegmentArray


@dataclass(frozen=True)
class Chunk:
    """The new tokens of one sequence in this step: `num_new` tokens from story position `start` on."""

    sequence: int
    start: int
    num_new: int

    @property
    def num_keys(self) -> int:
        """Keys the last new token may read: everything of its story up to itself."""
        return self.start + self.num_new


@dataclass(frozen=True)
class BlockCopy:
    """Copy-on-write, done before the forward: the first `num_tokens` tokens of block `source` go to block `target`."""

    source: int
    target: int
    num_tokens: int


@dataclass(frozen=True, eq=False)
class StepPlan:
    """One forward over T new tokens of S sequences, decode rows first, then prefill chunks.

    `input_ids`, `position_ids`, `slot_mapping` are `[T]` int64; `segment_ids` (index of the chunk) and `adapter_ids`
    (0 = base) `[T]` int32; `block_tables` `[S, max_blocks]` int32, short rows filled with block 0, the zero block;
    `sample_rows` `[R]` int64, the rows whose logits are wanted. A sequence's table lists the blocks of its ancestors
    first, then its own, so key p of a sequence is story position p.
    """

    chunks: tuple[Chunk, ...]
    input_ids: IntArray
    position_ids: IntArray
    segment_ids: SegmentArray
    adapter_ids: SegmentArray
    slot_mapping: IntArray
    block_tables: SegmentArray
    sample_rows: IntArray
    block_size: int
    copies: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.chunks)

    @cached_property
    def num_decode(self) -> int:
        """How many chunks, counted from the front, are single tokens of a running sequence."""
        count = 0
        for chunk in self.chunks:
            if chunk.num_new != 1 or chunk.start == 0:
                break
            count += 1
        return count

    @cached_property
    def cu_seqlens_q(self) -> SegmentArray:
        """`[S+1]` int32: prefix sums of the new tokens of each sequence."""
        return _prefix_sums([chunk.num_new for chunk in self.chunks])

    @cached_property
    def cu_seqlens_k(self) -> SegmentArray:
        """`[S+1]` int32: prefix sums of all keys of each sequence: ancestors, cache, new."""
        return _prefix_sums([chunk.num_keys for chunk in self.chunks])

    @cached_property
    def story_position_ids(self) -> IntArray:
        """`[T]`: where each new token stands in its own story, by which it is judged (the rule's position)."""
        return np.concatenate([np.arange(chunk.start, chunk.num_keys, dtype=np.int64) for chunk in self.chunks])

    @cached_property
    def key_sequences(self) -> SegmentArray:
        """`[K]` int32: the chunk whose table each key of the step stands in, sequence behind sequence."""
        return np.repeat(np.arange(self.num_sequences, dtype=np.int32), np.diff(self.cu_seqlens_k))

    @cached_property
    def key_positions(self) -> IntArray:
        """`[K]` int64: the story position of each key of the step."""
        return np.concatenate([np.arange(chunk.num_keys, dtype=np.int64) for chunk in self.chunks])


def _prefix_sums(lengths: list[int]) -> SegmentArray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
