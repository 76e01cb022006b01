"""BlockPool: hand out, share, release; the invariants hold after every move and catch a broken one."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kev_engine.cache.blocks import ZERO_BLOCK, BlockPool, BlockTable, OutOfBlocks


def test_a_run_is_contiguous_where_one_is_free():
    pool = BlockPool(11, 16)
    tables = [pool.allocate(count) for count in (3, 2, 2)]
    assert [table.tolist() for table in tables] == [[1, 2, 3], [4, 5], [6, 7]]
    pool.release(tables[1])
    assert pool.allocate(3).tolist() == [8, 9, 10], "the hole of two is too small"
    assert pool.allocate(2).tolist() == [4, 5], "the smallest hole that fits"


def test_scattered_blocks_are_used_when_no_run_is_long_enough():
    pool = BlockPool(6, 16)
    blocks = [pool.allocate(1) for _ in range(5)]
    pool.release(np.concatenate([blocks[0], blocks[2], blocks[4]]))
    assert pool.allocate(3).tolist() == [1, 3, 5]


def test_kept_blocks_go_last_and_the_least_recently_used_first():
    pool = BlockPool(9, 16)
    table = pool.allocate(8)
    pool.recency[table] = [0, 5, 4, 3, 0, 1, 2, 0]
    pool.release(table)
    assert (pool.num_free, pool.num_kept, pool.num_used) == (8, 5, 0)
    assert pool.allocate(1).tolist() == [1], "a blank one, though the runs of kept ones are older"
    assert pool.allocate(2).tolist() == [5, 6], "no run of two blank ones is left: the run used longest ago"
    pool.take(np.array([3, 4], dtype=np.int32))
    assert pool.allocate(3).tolist() == [2, 7, 8], "scattered: blank first, then by age"
    assert pool.recency[[1, 5, 6, 2, 7, 8]].sum() == 0
    blank = np.array([1], dtype=np.int32)
    pool.release(blank)
    with pytest.raises(AssertionError, match="nothing that was kept"):
        pool.take(blank)


def test_a_block_handed_out_anew_has_another_generation():
    pool = BlockPool(3, 16)
    [block] = pool.allocate(1)
    before = pool.generations[block]
    pool.release(np.array([block]))
    assert pool.generations[block] == before
    assert pool.allocate(1).tolist() == [block]
    assert pool.generations[block] == before + 1


def test_asking_for_too_much_changes_nothing():
    pool = BlockPool(4, 16)
    with pytest.raises(OutOfBlocks, match="4 blocks wanted, 3 free"):
        pool.allocate(4)
    assert pool.num_free == 3
    pool.check([])


@pytest.mark.parametrize("breakage", ["leak", "double", "foreign", "zero"])
def test_check_catches(breakage):
    pool = BlockPool(8, 16)
    table = pool.allocate(3)
    tables = {"leak": [], "double": [table[[0, 1, 2, 0]]], "foreign": [table, table[:1]],
              "zero": [np.array([ZERO_BLOCK, *table])]}
    with pytest.raises(AssertionError):
        pool.check(tables[breakage])


def test_a_block_cannot_be_released_twice():
    pool = BlockPool(4, 16)
    table = pool.allocate(1)
    pool.release(table)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(table)


class PoolMachine(RuleBasedStateMachine):
    """Random tables that allocate, share prefixes and go away: the pool always agrees with the tables."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(20, 16)
        self.tables: list[BlockTable] = []

    @rule(count=st.integers(0, 8))
    def allocate(self, count: int) -> None:
        if count > self.pool.num_free:
            with pytest.raises(OutOfBlocks):
                self.pool.allocate(count)
        else:
            self.tables.append(self.pool.allocate(count))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        prefix = table[: data.draw(st.integers(0, len(table)))]
        self.pool.share(prefix)
        self.tables.append(prefix)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.tables) - 1))
        self.pool.release(self.tables.pop(index))

    @invariant()
    def agrees(self) -> None:
        self.pool.check(self.tables)
        used = {block for table in self.tables for block in table}
        assert self.pool.num_used == len(used)
        assert self.pool.num_free + self.pool.num_used == self.pool.num_usable
        assert all(self.pool.is_shared(block) == (sum(block in table for table in self.tables) > 1) for block in used)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
