"""Scheduler: which tokens enter the next forward, and which blocks they use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kev_engine.cache.blocks import ZERO_BLOCK, BlockPool
from kev_engine.isolation.plan import BlockCopy, Chunk, StepPlan
from kev_engine.runtime.sequence import Sequence

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A plan and the sequences behind it: `sequences[c]` is chunk c's, `sampled[r]` the one that row r draws for.

    A sequence with a draft draws in several rows: behind its last token, and behind each guess.
    """

    plan: StepPlan
    sequences: tuple[Sequence, ...]
    sampled: tuple[Sequence, ...]


class Scheduler:
    """First come, first served: every running sequence decodes in every step, prompts fill what is left of the budget.

    A sequence is admitted when all blocks it may ever need are free, so a running sequence is never short of memory.
    Blocks are reserved at admission, contiguous where possible, and counted as used once they hold tokens.
    """

    def __init__(self, pool: BlockPool, token_budget: int, max_adapters: int | None = None) -> None:
        self.pool = pool
        self.token_budget = token_budget
        self.max_adapters = max_adapters
        """The most distinct adapters that running sequences may use together, the base not counted."""
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.block_owners = np.full(pool.num_blocks, NOBODY, dtype=np.int64)
        """Id of the sequence that writes into each block."""
        self._copies: list[BlockCopy] = []

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue these sequences in this order; a parent stands before its children."""
        self.waiting.extend(sequences)

    def blocks_needed(self, sequence: Sequence) -> int:
        """Blocks of its own that a sequence reserves: all of its projected story but the full blocks it shares."""
        return self.pool.blocks_for(sequence.num_projected) - sequence.num_inherited // self.pool.block_size

    def _blocks_to_run(self, sequence: Sequence) -> int:
        """Blocks that must be free before this sequence is of use: a context's first reader must fit beside it."""
        needed = self.blocks_needed(sequence)
        if sequence.is_context:
            needed += self._blocks_to_run(next(child for child in self.waiting if child.parent is sequence))
        return needed

    def _has_adapter_slot(self, sequence: Sequence) -> bool:
        if self.max_adapters is None:
            return True
        used = {running.adapter_id for running in (*self.running, sequence)} - {0}
        return len(used) <= self.max_adapters

    def next_step(self) -> Scheduled | None:
        """The next forward, or None when no sequence can take part in one."""
        self._admit()
        decodes = [sequence for sequence in self.running if sequence.num_output and sequence.num_pending == 1]
        prefills = [
            sequence for sequence in self.running if sequence.has_started and sequence.num_pending and
            not (sequence.num_output and sequence.num_pending == 1)
        ]
        budget = self.token_budget - len(decodes)
        prompts = []
        for sequence in prefills:
            count = min(sequence.num_pending, budget)
            if count > 0:
                prompts.append((sequence, count))
                budget -= count
        taking = []
        for sequence in decodes:
            # Guesses take what prompts leave.
            num_guesses = max(min(len(sequence.draft), budget), 0)
            taking.append((sequence, 1 + num_guesses))
            budget -= num_guesses
        taking.sort(key=lambda taken: taken[1] > 1)
        taking += prompts
        return self._plan(taking) if taking else None

    def _admit(self) -> None:
        # A started prompt of the running ones comes first; with the budget used up, admitting would only hold blocks.
        budget = self.token_budget - sum(sequence.num_pending for sequence in self.running if sequence.has_started)
        while self.waiting and budget > 0:
            sequence = self.waiting[0]
            if self._blocks_to_run(sequence) > self.pool.num_free or not self._has_adapter_slot(sequence):
                return
            self.waiting.popleft()
            self._reserve(sequence)
            if sequence.has_started:
                budget -= sequence.num_pending

    def _reserve(self, sequence: Sequence) -> None:
        own = self.pool.allocate(self.blocks_needed(sequence))
        self.block_owners[own] = sequence.id
        self.running.append(sequence)
        if sequence.parent is None:
            sequence.block_table = own
            sequence.has_started = True
            return
        sequence.num_shared_blocks = sequence.num_inherited // self.pool.block_size
        shared = sequence.parent.block_table[: sequence.num_shared_blocks]
        self.pool.share(shared)
        sequence.block_table = shared + own
        if sequence.parent.is_prefilled:
            self._start(sequence)

    def _start(self, child: Sequence) -> None:
        """Let a child run: its parent's story is stored, and the unfull last block of it is copied."""
        parent = child.parent
        assert parent is not None
        tail = child.num_inherited % self.pool.block_size
        if tail:
            index = child.num_shared_blocks
            self._copies.append(BlockCopy(parent.block_table[index], child.block_table[index], tail))
        child.has_started = True
        parent.num_children_waiting -= 1
        if parent.num_children_waiting == 0:
            self.finish(parent)

    def _plan(self, taking: list[tuple[Sequence, int]]) -> Scheduled:
        size = self.pool.block_size
        chunks, tokens, positions, slots = [], [], [], []
        sample_rows: list[int] = []
        sampled: list[Sequence] = []
        row = 0
        for sequence, count in taking:
            start = sequence.num_computed
            chunks.append(Chunk(sequence.id, start, count))
            num_known = len(sequence.tokens) - start
            guesses = sequence.draft[: max(count - num_known, 0)]
            tokens.append(np.asarray(sequence.tokens[start : start + count] + guesses, dtype=np.int64))
            where = np.arange(start, start + count, dtype=np.int64)
            positions.append(where)
            table = np.asarray(sequence.block_table, dtype=np.int64)
            slots.append(table[where // size] * size + where % size)
            row += count
            if count >= num_known and not sequence.is_context:
                drawing = range(row - 1 - len(guesses), row)
                sample_rows += drawing
                sampled += [sequence] * len(drawing)
        counts = [count for _, count in taking]
        copies, self._copies = tuple(self._copies), []
        plan = StepPlan(
            chunks=tuple(chunks),
            input_ids=np.concatenate(tokens),
            position_ids=np.concatenate(positions),
            segment_ids=np.repeat(np.arange(len(taking), dtype=np.int32), counts),
            adapter_ids=np.repeat(np.array([sequence.adapter_id for sequence, _ in taking], dtype=np.int32), counts),
            slot_mapping=np.concatenate(slots),
            block_tables=_pad([sequence.block_table for sequence, _ in taking]),
            sample_rows=np.asarray(sample_rows, dtype=np.int64),
            block_size=size,
            copies=copies,
        )
        return Scheduled(plan, tuple(sequence for sequence, _ in taking), tuple(sampled))

    def commit(self, done: Scheduled) -> None:
        """Record that the forward of this plan has stored its keys and values; children of finished contexts start.

        What was stored of a draft does not count: the slots of guesses that come true are taken over by
        `Sequence.append`, the others are written again before anything reads them.
        """
        for chunk, sequence in zip(done.plan.chunks, done.sequences, strict=True):
            sequence.num_computed = min(chunk.num_keys, len(sequence.tokens))
        for child in list(self.running):
            if not child.has_started and child.parent is not None and child.parent.is_prefilled:
                self._start(child)

    def finish(self, sequence: Sequence) -> None:
        """End a sequence, wherever it stands, and release its blocks; ending it twice changes nothing."""
        if sequence.is_finished:
            return
        sequence.is_finished = True
        if sequence in self.running:
            self.running.remove(sequence)
            self.pool.release(sequence.block_table)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        parent = sequence.parent
        if parent is not None and not sequence.has_started:
            parent.num_children_waiting -= 1
            if parent.num_children_waiting == 0:
                self.finish(parent)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def check(self) -> None:
        """Prove the pool's invariants against the tables of the running sequences; raises AssertionError."""
        self.pool.check([sequence.block_table for sequence in self.running])

    def used_blocks(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The blocks that hold tokens, each once, ascending."""
        held = [sequence.block_table[: self.pool.blocks_for(sequence.num_computed)] for sequence in self.running]
        return np.unique(np.concatenate([np.asarray(blocks, dtype=np.int64) for blocks in [[], *held]]))


def _pad(tables: list[list[int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    widest = max(len(table) for table in tables)
    padded = np.full((len(tables), widest), ZERO_BLOCK, dtype=np.int32)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded
