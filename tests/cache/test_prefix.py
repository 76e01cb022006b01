"""PrefixCache: only equal tokens under an equal identity are found, while they are there."""

import os
from dataclasses import fields, replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kev_engine.cache.blocks import BlockPool, BlockTable
from kev_engine.cache.prefix import Identity, KeyChain, PrefixCache, digest

EXAMPLES = 2000 if os.environ.get("KEV_SOAK") else 30
SIZE = 4
IDENTITY = Identity("weights", "float32", "float32", "tokenizer", "template", "rope")
ROOT = IDENTITY.root_key("")


def stored(cache: PrefixCache, tokens: list[int], root: bytes = ROOT) -> BlockTable:
    """A story of these tokens computed and kept, its blocks in use."""
    table = cache.pool.allocate(cache.pool.blocks_for(len(tokens)))
    chain = KeyChain(root)
    for index in range(len(tokens) // SIZE):
        cache.keep(chain, tokens, index, int(table[index]))
    return table


def found(cache: PrefixCache, tokens: list[int], root: bytes = ROOT) -> list[int]:
    return cache.match(KeyChain(root), tokens, len(tokens)).tolist()


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(BlockPool(20, SIZE), max_blocks=10)


def test_a_story_finds_its_full_blocks_while_they_are_used_and_afterwards(cache):
    tokens = list(range(10))
    table = stored(cache, tokens)
    assert found(cache, tokens) == table[:2].tolist()
    cache.release(table)
    assert cache.pool.num_used == 0
    assert cache.pool.num_kept == 2, "the unfull block is not kept"
    assert found(cache, [*tokens, 99]) == table[:2].tolist()
    assert found(cache, tokens[:7]) == table[:1].tolist()
    assert found(cache, [0, 1, 2, 3, 9, 9, 9, 9]) == table[:1].tolist()
    assert found(cache, [9, *tokens[1:]]) == []
    assert found(cache, tokens[4:8]) == [], "the same tokens behind another beginning"


def test_the_limit_leaves_tokens_to_compute(cache):
    tokens = list(range(8))
    table = stored(cache, tokens)
    assert cache.match(KeyChain(ROOT), tokens, 7).tolist() == table[:1].tolist()


@pytest.mark.parametrize("name", [item.name for item in fields(Identity)])
def test_every_part_of_the_identity_is_in_the_key(cache, name):
    tokens = list(range(8))
    stored(cache, tokens)
    assert found(cache, tokens, replace(IDENTITY, **{name: "other"}).root_key("")) == []


def test_an_adapter_is_in_the_key_by_its_content(cache):
    tokens = list(range(8))
    stored(cache, tokens, IDENTITY.root_key("aa"))
    assert found(cache, tokens) == found(cache, tokens, IDENTITY.root_key("bb")) == []
    assert len(found(cache, tokens, IDENTITY.root_key("aa"))) == 2


def test_fields_cannot_run_into_each_other():
    parts = [("ab", b"c"), ("a", b"bc"), ("", b"abc"), ("abc", b"")]
    assert len({digest([part]) for part in parts}) == 4
    assert digest([("a", b"x"), ("b", b"y")]) != digest([("b", b"y"), ("a", b"x")])
    assert digest([("a", b""), ("b", b"")]) != digest([("a", b"")])
    swapped = replace(IDENTITY, weights="float32", dtype="weights")
    assert swapped.root_key("") != IDENTITY.root_key("")


def test_equal_keys_of_different_tokens_are_told_apart(cache):
    """What a broken digest would give: the tokens themselves are compared."""
    stored(cache, [1, 2, 3, 4])
    chain = KeyChain(ROOT)
    chain.key(0, [1, 2, 3, 4], SIZE)
    assert cache.match(chain, [5, 6, 7, 8], 4).tolist() == []


def test_a_block_handed_out_anew_is_found_no_more(cache):
    tokens = list(range(8))
    table = stored(cache, tokens)
    cache.release(table)
    cache.pool.allocate(cache.pool.num_free)
    assert found(cache, tokens) == []
    cache.check()


def test_the_least_recently_used_story_goes_first_and_its_end_before_its_beginning():
    cache = PrefixCache(BlockPool(20, SIZE), max_blocks=5)
    stories = [[story] * 8 for story in (1, 2, 3)]
    tables = [stored(cache, tokens) for tokens in stories[:2]]
    for table in tables:
        cache.release(table)
    cache.pool.take(tables[0])
    cache.release(tables[0])
    cache.release(stored(cache, stories[2]))
    assert [len(found(cache, tokens)) for tokens in stories] == [2, 1, 2]
    assert found(cache, stories[1]) == tables[1][:1].tolist()


def test_what_turned_out_to_be_unusable_is_forgotten(cache):
    tokens = list(range(8))
    table = stored(cache, tokens)
    cache.forget(table)
    cache.release(table)
    assert found(cache, tokens) == []
    assert cache.pool.num_kept == 0


def test_two_stories_computed_at_once_are_kept_once(cache):
    tokens = list(range(8))
    first, second = stored(cache, tokens), stored(cache, tokens)
    cache.release(second)
    assert cache.pool.num_kept == 0
    assert found(cache, tokens) == first.tolist()
    cache.release(first)
    assert cache.pool.num_kept == 2


class CacheMachine(RuleBasedStateMachine):
    """Stories over a small alphabet come and go in a small pool: what is found holds exactly the tokens looked for.

    `content` plays the memory: what was last written into each block.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(BlockPool(12, 2), max_blocks=6)
        self.content: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        self.tables: list[BlockTable] = []

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9), root=st.sampled_from([b"base", b"adapter"]))
    def run(self, tokens: list[int], root: bytes) -> None:
        pool, chain = self.cache.pool, KeyChain(root)
        hit = self.cache.match(chain, tokens, len(tokens) - 1)
        for index, block in enumerate(hit.tolist()):
            assert self.content[block] == (root, tuple(tokens[: (index + 1) * 2]))
        needed = pool.blocks_for(len(tokens)) - len(hit)
        if needed > pool.num_free - np.count_nonzero(pool.refs[hit] == 0):
            return
        pool.take(hit)
        own = pool.allocate(needed)
        table = np.concatenate([hit, own])
        for index in range(len(hit), len(table)):
            self.content[int(table[index])] = (root, tuple(tokens[: (index + 1) * 2]))
            if (index + 1) * 2 <= len(tokens):
                self.cache.keep(chain, tokens, index, int(table[index]))
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), is_sound=st.booleans())
    def end(self, data: st.DataObject, is_sound: bool) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        if not is_sound:
            self.cache.forget(table)
        self.cache.release(table)

    @invariant()
    def agrees(self) -> None:
        self.cache.pool.check(self.tables)
        self.cache.check()


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)
