"""BlockPool: which block of KV memory belongs to which sequences, as reference counts. It holds no tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BlockTable = npt.NDArray[np.int32]
"""Blocks in the order of the story they hold, `[N]`."""

ZERO_BLOCK = 0
"""Reserved: its keys and values stay zero, so that a padding read gives zeros and never somebody's token."""


class OutOfBlocks(Exception):
    """More blocks were asked for than are free. The scheduler admits by projection, so users never see it."""


class BlockPool:
    """Fixed blocks of `block_size` tokens, handed out with reference counts.

    One owner, the engine's worker. Blocks of one call are a contiguous run wherever a long enough one is free, so that
    a sequence's keys can be read as a view. A free block may hold content worth keeping (`recency` above 0, larger =
    used later); it is handed out only when no run of blank blocks fits, the least recently used first, and `take`
    brings it back until then. Being handed out changes a block's generation: who remembers the old one sees it.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.refs: npt.NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self.generations: npt.NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self.recency: npt.NDArray[np.int64] = np.zeros(num_blocks, dtype=np.int64)
        self.refs[ZERO_BLOCK] = 1

    @property
    def num_usable(self) -> int:
        """Blocks that can hold tokens: all but the zero block."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out, kept ones included."""
        return int(np.count_nonzero(self.refs == 0))

    @property
    def num_kept(self) -> int:
        """Free blocks whose content is worth keeping."""
        return int(np.count_nonzero((self.refs == 0) & (self.recency > 0)))

    @property
    def num_used(self) -> int:
        return self.num_usable - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """The number of blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> BlockTable:
        """`count` blocks with one reference each.

        The smallest contiguous run of blank blocks that fits; else the contiguous run whose kept content was used
        longest ago; else the blank blocks and then the least recently used ones, wherever they lie. Raises OutOfBlocks
        and changes nothing when fewer are free.
        """
        if count == 0:
            return np.zeros(0, dtype=np.int32)
        free = np.flatnonzero(self.refs == 0).astype(np.int32)
        if len(free) < count:
            raise OutOfBlocks(f"{count} blocks wanted, {len(free)} free")
        blocks = _best_fit(free[self.recency[free] == 0], count)
        if blocks is None:
            blocks = _oldest_run(free, self.recency[free], count)
        if blocks is None:
            blocks = np.sort(free[np.argsort(self.recency[free], kind="stable")[:count]])
        self.refs[blocks] = 1
        self.generations[blocks] += 1
        self.recency[blocks] = 0
        return blocks

    def share(self, blocks: BlockTable) -> None:
        """One more reference to each of these distinct blocks, which must be in use."""
        assert (self.refs[blocks] > 0).all(), f"of blocks {blocks.tolist()} some are free and cannot be shared"
        self.refs[blocks] += 1

    def take(self, blocks: BlockTable) -> None:
        """One more reference to each of these distinct blocks, which must be in use or kept."""
        alive = (self.refs[blocks] > 0) | (self.recency[blocks] > 0)
        assert alive.all(), f"of blocks {blocks.tolist()} some hold nothing that was kept"
        self.refs[blocks] += 1

    def release(self, blocks: BlockTable) -> None:
        """One reference fewer to each of these distinct blocks; at zero a block is free again."""
        assert (self.refs[blocks] > (blocks == ZERO_BLOCK)).all(), f"one of blocks {blocks.tolist()} was released twice"
        self.refs[blocks] -= 1

    def is_shared(self, block: int) -> bool:
        """Whether writing into this block would change what another table reads."""
        return bool(self.refs[block] > 1)

    def check(self, tables: Sequence[BlockTable]) -> None:
        """Prove that these tables account for every reference: refs = occurrences, no block twice in one table.

        Raises AssertionError naming the block that does not add up.
        """
        counted = np.zeros(self.num_blocks, dtype=np.int32)
        counted[ZERO_BLOCK] = 1
        for table in tables:
            assert len(np.unique(table)) == len(table), f"a table holds a block twice: {list(table)}"
            assert ZERO_BLOCK not in table, "a table holds the zero block"
            counted[table] += 1
        wrong = np.flatnonzero(counted != self.refs)
        assert not len(wrong), f"block {wrong[0]}: {self.refs[wrong[0]]} references, {counted[wrong[0]]} in tables"
        assert (self.recency >= 0).all()
        assert self.recency[ZERO_BLOCK] == 0, "the zero block holds nothing"


def _best_fit(blocks: BlockTable, count: int) -> BlockTable | None:
    """The first `count` of the shortest contiguous run that is long enough, or None; `blocks` ascend."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(blocks) != 1) + 1, [len(blocks)]])
    lengths = np.diff(edges)
    fitting = np.flatnonzero(lengths >= count)
    if not len(fitting):
        return None
    start = edges[fitting[np.argmin(lengths[fitting])]]
    return blocks[start : start + count]


def _oldest_run(blocks: BlockTable, recency: npt.NDArray[np.int64], count: int) -> BlockTable | None:
    """The contiguous run of `count` blocks with the least recency in sum, or None; `blocks` ascend."""
    starts = np.flatnonzero(blocks[count - 1 :] - blocks[: len(blocks) - count + 1] == count - 1)
    if not len(starts):
        return None
    sums = np.concatenate([[0], np.cumsum(recency)])
    start = starts[np.argmin(sums[starts + count] - sums[starts])]
    return blocks[start : start + count]
