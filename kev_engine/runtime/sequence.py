"""Sequence: one story being computed, and everything the worker knows about it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kev_engine.cache.blocks import BlockTable
from kev_engine.cache.prefix import KeyChain

NO_BLOCKS: BlockTable = np.zeros(0, dtype=np.int32)


@dataclass(eq=False)
class Sequence:
    """The tokens of one story and how far its keys and values are stored. Owned by the worker.

    `tokens` is the whole story, ancestors first; the first `num_inherited` of them are its parent's whole
    story, computed there. A sequence with `max_new_tokens` 0 is a context: it is only read by its children, and ends
    when each of them has started. `chain` keys its blocks for the prefix cache; without one they are not kept.

    A sequence that was preempted computes its whole story again, or finds it in the prefix cache; having started once,
    it needs its parent no more.
    """

    tokens: list[int]
    max_new_tokens: int
    adapter_id: int = 0
    parent: Sequence | None = None
    id: int = -1
    priority: int = 0
    chain: KeyChain | None = None
    num_inherited: int = field(init=False)
    num_prompt: int = field(init=False)
    num_computed: int = field(init=False)
    num_cached: int = field(init=False, default=0)
    """Prompt tokens that the prefix cache held when the sequence was first admitted."""
    block_table: BlockTable = field(init=False, default_factory=lambda: NO_BLOCKS)
    num_kept_blocks: int = field(init=False, default=0)
    """Blocks at the front of the table that the prefix cache has seen."""
    num_children_waiting: int = field(init=False, default=0)
    num_admissions: int = field(init=False, default=0)
    draft: list[int] = field(init=False, default_factory=list)
    """Guessed tokens behind the last one. A decode step takes as many along as the budget leaves room for."""
    is_scored: bool = field(init=False, default=False)
    """Log-probabilities of this prompt are wanted: each of its rows is computed, none taken from a cache."""
    rank: tuple[float, int] = field(init=False, default=(0, 0))
    has_started: bool = field(init=False, default=False)
    is_finished: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.num_prompt = len(self.tokens)
        self.num_inherited = 0 if self.parent is None else self.parent.num_prompt
        self.num_computed = self.num_inherited
        if self.parent is not None:
            self.parent.num_children_waiting += 1

    def append(self, token_id: int, is_stored: bool = False) -> None:
        """Go on by one token; `is_stored`: it was guessed, and its key and value are in place."""
        self.tokens.append(token_id)
        self.num_computed += is_stored

    @property
    def lineage(self) -> list[Sequence]:
        """The sequence and its ancestors."""
        return [self] if self.parent is None else [self, *self.parent.lineage]

    @property
    def is_context(self) -> bool:
        return self.max_new_tokens == 0

    @property
    def inherits(self) -> bool:
        """Whether it will start from its parent's blocks."""
        return self.parent is not None and not self.has_started

    @property
    def num_pending(self) -> int:
        """Tokens whose keys and values are not stored yet."""
        return len(self.tokens) - self.num_computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def output(self) -> list[int]:
        return self.tokens[self.num_prompt :]

    @property
    def is_decoding(self) -> bool:
        """Whether all it lacks is its newest token."""
        return len(self.tokens) > self.num_prompt and self.num_pending == 1

    @property
    def is_prefilled(self) -> bool:
        return self.num_computed >= self.num_prompt

    @property
    def num_projected(self) -> int:
        """The most tokens whose keys and values will ever be stored: the last new token is never read."""
        return self.num_prompt + max(self.max_new_tokens - 1, 0)
