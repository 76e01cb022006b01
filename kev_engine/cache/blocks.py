"""BlockPool: which block of KV memory belongs to which sequences, as reference counts. It holds no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

ZERO_BLOCK = 0
"""Reserved: its keys and values stay zero, so that a padding read gives zeros and never somebody's token."""


class OutOfBlocks(Exception):
    """More blocks were asked for than are free. The scheduler admits by projection, so users never see it."""


class BlockPool:
    """Fixed blocks of `block_size` tokens, handed out with reference counts.

    One owner, the engine's worker. Blocks of one call are a contiguous run wherever a long enough one is free, so that
    a sequence's keys can be read as a view.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.refs: npt.NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self.generations: npt.NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self.refs[ZERO_BLOCK] = 1

    @property
    def num_usable(self) -> int:
        """Blocks that can hold tokens: all but the zero block."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        return int(np.count_nonzero(self.refs == 0))

    @property
    def num_used(self) -> int:
        return self.num_usable - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """The number of blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with one reference each: the smallest contiguous run that fits, else the lowest free ones.

        Raises OutOfBlocks and changes nothing when fewer are free.
        """
        if count == 0:
            return []
        free = np.flatnonzero(self.refs == 0)
        if len(free) < count:
            raise OutOfBlocks(f"{count} blocks wanted, {len(free)} free")
        blocks = self._best_fit(free, count)
        self.refs[blocks] = 1
        self.generations[blocks] += 1
        return [int(block) for block in blocks]

    @staticmethod
    def _best_fit(free: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        edges = np.concatenate([[0], np.flatnonzero(np.diff(free) != 1) + 1, [len(free)]])
        fitting = [(end - start, start) for start, end in pairwise(edges.tolist()) if end - start >= count]
        start = min(fitting)[1] if fitting else 0
        return free[start : start + count]

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to each of these blocks, which must be in use."""
        for block in blocks:
            assert self.refs[block] > 0, f"block {block} is free and cannot be shared"
            self.refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One reference fewer to each of these blocks; at zero a block is free again."""
        for block in blocks:
            assert self.refs[block] > (block == ZERO_BLOCK), f"block {block} was released twice"
            self.refs[block] -= 1

    def is_shared(self, block: int) -> bool:
        """Whether writing into this block would change what another table reads."""
        return bool(self.refs[block] > 1)

    def check(self, tables: Sequence[Sequence[int]]) -> None:
        """Prove that these tables account for every reference: refs = occurrences, no block twice in one table.

        Raises AssertionError naming the block that does not add up.
        """
        counted = np.zeros(self.num_blocks, dtype=np.int32)
        counted[ZERO_BLOCK] = 1
        for table in tables:
            assert len(set(table)) == len(table), f"a table holds a block twice: {list(table)}"
            assert ZERO_BLOCK not in table, "a table holds the zero block"
            counted[list(table)] += 1
        wrong = np.flatnonzero(counted != self.refs)
        assert not len(wrong), f"block {wrong[0]}: {self.refs[wrong[0]]} references, {counted[wrong[0]]} in tables"
