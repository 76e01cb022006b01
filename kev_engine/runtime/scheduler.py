"""Scheduler: which tokens enter the next forward, and which blocks they use."""

from __future__ import annotations

import itertools
from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from kev_engine.cache.blocks import ZERO_BLOCK, BlockPool, BlockTable
from kev_engine.cache.prefix import PrefixCache
from kev_engine.isolation.plan import BlockCopy, Chunk, StepPlan
from kev_engine.runtime.policy import FIFO, Policy
from kev_engine.runtime.sequence import NO_BLOCKS, Sequence

NOBODY = -1
by_rank = attrgetter("rank")


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A plan and the sequences behind it: `sequences[c]` is chunk c's, `sampled[r]` the one that row r draws for.

    A sequence with a draft draws in several rows: behind its last token, and behind each guess.
    """

    plan: StepPlan
    sequences: tuple[Sequence, ...]
    sampled: tuple[Sequence, ...]


class Scheduler:
    """Every running sequence decodes in every step, prompts fill what is left of the budget.

    A sequence is admitted, in the order of the policy, when all blocks it may ever need are free, so a running sequence
    is never short of memory. Blocks are reserved at admission, contiguous where possible, and counted as used once they
    hold tokens. Nobody overtakes the first in the queue, so whoever waits there is admitted as soon as he fits.
    """

    def __init__(
        self, pool: BlockPool, token_budget: int, max_adapters: int | None = None, prefill_chunk: int | None = None,
        policy: Policy = FIFO, cache: PrefixCache | None = None,
    ) -> None:
        self.pool = pool
        self.token_budget = token_budget
        self.max_adapters = max_adapters
        """The most distinct adapters that running sequences may use together, the base not counted."""
        self.prefill_chunk = prefill_chunk
        """The most prompt tokens of a step in which others decode; None: as many as the budget leaves."""
        self.policy = policy
        self.cache = cache
        self.waiting: list[Sequence] = []
        """By rank; a parent stands before its children."""
        self.running: list[Sequence] = []
        self.block_owners = np.full(pool.num_blocks, NOBODY, dtype=np.int64)
        """Id of the sequence that writes into each block, or was the first of now to read it from the prefix cache."""
        self._arrivals = itertools.count()
        self._num_steps = 0

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue these sequences, a parent before its children; a context and its readers have one rank."""
        groups: dict[Sequence, list[Sequence]] = {}
        for sequence in sequences:
            groups.setdefault(sequence.lineage[-1], []).append(sequence)
        for group in groups.values():
            rank, priority = self.policy.rank(group, self._num_steps), max(member.priority for member in group)
            for member in group:
                member.rank, member.priority = (rank, next(self._arrivals)), priority
                insort(self.waiting, member, key=by_rank)

    def next_step(self) -> Scheduled | None:
        """The next forward, or None when no sequence can take part in one."""
        copies: list[BlockCopy] = []
        for sequence in list(self.running):
            self._keep_blocks(sequence)
            if not sequence.has_started and sequence.parent is not None and sequence.parent.is_prefilled:
                self._start(sequence, copies)
        self._admit(copies)
        taking = self._take_turns()
        while not taking and self.waiting and self.running:
            # Only contexts are left, whose readers wait behind somebody who does not fit beside them.
            self._preempt(max(self.running, key=by_rank))
            self._admit(copies)
            taking = self._take_turns()
        if not taking:
            return None
        self._num_steps += 1
        return self._plan(taking, tuple(copies))

    def _take_turns(self) -> list[tuple[Sequence, int]]:
        """Who takes part, with how many tokens: those that decode first, then prompts by rank."""
        decoding = [sequence for sequence in self.running if sequence.is_decoding]
        room = self._room_for_prompts(len(decoding))
        prompts: list[tuple[Sequence, int]] = []
        for sequence in sorted(filter(_is_prefilling, self.running), key=by_rank):
            count = min(sequence.num_pending, room)
            if count > 0:
                prompts.append((sequence, count))
                room -= count
        spare = self.token_budget - len(decoding) - sum(count for _, count in prompts)
        turns: list[tuple[Sequence, int]] = []
        for sequence in decoding:
            # Guesses take what prompts leave.
            num_guesses = max(min(len(sequence.draft), spare), 0)
            turns.append((sequence, 1 + num_guesses))
            spare -= num_guesses
        turns.sort(key=lambda turn: turn[1] > 1)
        return turns + prompts

    def _room_for_prompts(self, num_decoding: int) -> int:
        room = self.token_budget - num_decoding
        return room if self.prefill_chunk is None or not num_decoding else min(room, self.prefill_chunk)

    def _admit(self, copies: list[BlockCopy]) -> None:
        """Let sequences in from the front of the queue, as long as the step has room for tokens of their prompts."""
        room = self._room_for_prompts(sum(sequence.is_decoding for sequence in self.running))
        while self.waiting:
            sequence = self.waiting[0]
            # Started prompts of better rank come first; with the room used up, admitting would only hold blocks.
            ahead = (other for other in self.running if _is_prefilling(other) and other.rank < sequence.rank)
            if sum(other.num_pending for other in ahead) >= room:
                return
            cached = self._cached_blocks(sequence)
            while not self._fits(sequence, cached, self.pool.refs, self.running):
                if not self._make_room(sequence, cached):
                    return
                # What was released just now may have pushed out of the prefix cache what was found in it.
                cached = self._cached_blocks(sequence)
            self.waiting.pop(0)
            self._reserve(sequence, cached)
            if sequence.inherits and sequence.parent is not None and sequence.parent.is_prefilled:
                self._start(sequence, copies)

    def _cached_blocks(self, sequence: Sequence) -> BlockTable:
        """What the prefix cache holds of a story, but for its last token, which must be computed to draw the next."""
        if self.cache is None or sequence.chain is None or sequence.inherits or sequence.is_scored:
            return NO_BLOCKS
        return self.cache.match(sequence.chain, sequence.tokens, len(sequence.tokens) - 1)

    def blocks_needed(self, sequence: Sequence, num_cached: int = 0) -> int:
        """Blocks of its own that a sequence reserves: all of its projected story but the full blocks it shares."""
        inherited = sequence.num_inherited // self.pool.block_size if sequence.inherits else num_cached
        return self.pool.blocks_for(sequence.num_projected) - inherited

    def _blocks_to_run(self, sequence: Sequence, num_cached: int) -> int:
        """Blocks that must be free before this sequence is of use: a context's first reader must fit beside it."""
        needed = self.blocks_needed(sequence, num_cached)
        if sequence.is_context:
            readers = (child for child in self.waiting if child.parent is sequence and child.inherits)
            needed += self._blocks_to_run(next(readers), 0)
        return needed

    def _fits(
        self, sequence: Sequence, cached: BlockTable, refs: npt.NDArray[np.int32], running: Iterable[Sequence]
    ) -> bool:
        """Whether it can be admitted beside `running`, whose tables account for `refs`."""
        free = np.count_nonzero(refs == 0) - np.count_nonzero(refs[cached] == 0)
        if self._blocks_to_run(sequence, len(cached)) > free:
            return False
        used = {other.adapter_id for other in (*running, sequence)} - {0}
        return self.max_adapters is None or len(used) <= self.max_adapters

    def _make_room(self, sequence: Sequence, cached: BlockTable) -> bool:
        """Preempt running sequences, the last in rank first, if that lets this one in; else nobody."""
        if not self.policy.preempts:
            return False
        refs, staying = self.pool.refs.copy(), sorted(self.running, key=by_rank)
        while staying and staying[-1].priority < sequence.priority and staying[-1].rank > sequence.rank:
            refs[staying.pop().block_table] -= 1
            if self._fits(sequence, cached, refs, staying):
                for victim in [running for running in self.running if running not in staying]:
                    self._preempt(victim)
                return True
        return False

    def _preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the queue; what it computed is computed again, or found in the cache."""
        self.running.remove(sequence)
        self._release(sequence)
        insort(self.waiting, sequence, key=by_rank)

    def _reserve(self, sequence: Sequence, cached: BlockTable) -> None:
        size = self.pool.block_size
        if sequence.inherits:
            assert sequence.parent is not None
            shared = sequence.parent.block_table[: sequence.num_inherited // size]
            sequence.num_computed, num_cached = sequence.num_inherited, sequence.parent.num_cached
        else:
            shared, sequence.has_started = cached, True
            sequence.num_computed = num_cached = len(cached) * size
        self.block_owners[shared[self.pool.refs[shared] == 0]] = sequence.id
        self.pool.take(shared)
        own = self.pool.allocate(self.blocks_needed(sequence, len(cached)))
        self.block_owners[own] = sequence.id
        sequence.block_table = np.concatenate([shared, own])
        sequence.num_kept_blocks = len(shared)
        if not sequence.num_admissions:
            sequence.num_cached = num_cached
        sequence.num_admissions += 1
        self.running.append(sequence)

    def _start(self, child: Sequence, copies: list[BlockCopy]) -> None:
        """Let a child run: its parent's story is stored, and the unfull last block of it is copied."""
        parent = child.parent
        assert parent is not None
        index, tail = divmod(child.num_inherited, self.pool.block_size)
        if tail:
            copies.append(BlockCopy(int(parent.block_table[index]), int(child.block_table[index]), tail))
        if child.chain is not None and parent.chain is not None:
            child.chain.inherit(parent.chain, index)
        child.has_started = True
        parent.num_children_waiting -= 1
        if parent.num_children_waiting == 0:
            self.finish(parent)

    def _plan(self, taking: list[tuple[Sequence, int]], copies: tuple[BlockCopy, ...]) -> Scheduled:
        size = self.pool.block_size
        tables = np.full((len(taking), max(len(sequence.block_table) for sequence, _ in taking)), ZERO_BLOCK, np.int32)
        chunks: list[Chunk] = []
        tokens: list[int] = []
        sample_rows: list[int] = []
        sampled: list[Sequence] = []
        for index, (sequence, count) in enumerate(taking):
            start = sequence.num_computed
            chunks.append(Chunk(sequence.id, start, count))
            num_known = len(sequence.tokens) - start
            guesses = sequence.draft[: max(count - num_known, 0)]
            tokens += sequence.tokens[start : start + count] + guesses
            tables[index, : len(sequence.block_table)] = sequence.block_table
            if count >= num_known and not sequence.is_context:
                drawing = range(len(tokens) - 1 - len(guesses), len(tokens))
                sample_rows += drawing
                sampled += [sequence] * len(drawing)
        counts = np.array([count for _, count in taking])
        segment_ids = np.repeat(np.arange(len(taking), dtype=np.int32), counts)
        offsets = np.array([chunk.start for chunk in chunks]) - (np.cumsum(counts) - counts)
        positions = np.arange(len(tokens), dtype=np.int64) + offsets[segment_ids]
        adapters = np.array([sequence.adapter_id for sequence, _ in taking], dtype=np.int32)
        plan = StepPlan(
            chunks=tuple(chunks),
            input_ids=np.array(tokens, dtype=np.int64),
            position_ids=positions,
            segment_ids=segment_ids,
            adapter_ids=adapters[segment_ids],
            slot_mapping=tables[segment_ids, positions // size].astype(np.int64) * size + positions % size,
            block_tables=tables,
            sample_rows=np.array(sample_rows, dtype=np.int64),
            block_size=size,
            copies=copies,
        )
        return Scheduled(plan, tuple(sequence for sequence, _ in taking), tuple(sampled))

    def commit(self, done: Scheduled) -> None:
        """Record that the forward of this plan has stored its keys and values.

        What was stored of a draft does not count: the slots of guesses that come true are taken over by
        `Sequence.append`, the others are written again before anything reads them.
        """
        for chunk, sequence in zip(done.plan.chunks, done.sequences, strict=True):
            sequence.num_computed = min(chunk.num_keys, len(sequence.tokens))

    def finish(self, sequence: Sequence, is_sound: bool = True) -> None:
        """End a sequence, wherever it stands, and release its blocks; ending it twice changes nothing.

        Nothing it computed or read is kept where `is_sound` is false.
        """
        if sequence.is_finished:
            return
        sequence.is_finished = True
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence, is_sound)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        parent = sequence.parent
        if parent is not None and sequence.inherits:
            parent.num_children_waiting -= 1
            if parent.num_children_waiting == 0:
                self.finish(parent)

    def _release(self, sequence: Sequence, is_sound: bool = True) -> None:
        if self.cache is None:
            self.pool.release(sequence.block_table)
        else:
            self._keep_blocks(sequence)
            if not is_sound:
                self.cache.forget(sequence.block_table)
            self.cache.release(sequence.block_table)
        sequence.block_table = NO_BLOCKS
        sequence.num_computed = 0
        sequence.draft = []

    def _keep_blocks(self, sequence: Sequence) -> None:
        """Show the prefix cache the blocks of this sequence that became full."""
        full = sequence.num_computed // self.pool.block_size
        if self.cache is None or sequence.chain is None or full <= sequence.num_kept_blocks:
            return
        for index in range(sequence.num_kept_blocks, full):
            self.cache.keep(sequence.chain, sequence.tokens, index, int(sequence.block_table[index]))
        sequence.num_kept_blocks = full

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def check(self) -> None:
        """Prove that tables, references, queue and cache agree; raises AssertionError."""
        self.pool.check([sequence.block_table for sequence in self.running])
        if self.cache is not None:
            self.cache.check()
        assert self.waiting == sorted(self.waiting, key=by_rank), "the queue is out of order"
        assert not set(self.waiting) & set(self.running), "a sequence waits and runs"
        alive = [*self.waiting, *self.running]
        readers = Counter(sequence.parent for sequence in alive if sequence.inherits)
        for sequence in alive:
            assert not sequence.is_finished, f"sequence {sequence.id} has ended and is still here"
            assert readers[sequence] == sequence.num_children_waiting, f"sequence {sequence.id} counts readers wrongly"

    def used_blocks(self) -> npt.NDArray[np.int64]:
        """The blocks that hold tokens, each once, ascending."""
        held = np.zeros(self.pool.num_blocks, dtype=np.bool_)
        for sequence in self.running:
            held[sequence.block_table[: self.pool.blocks_for(sequence.num_computed)]] = True
        return np.flatnonzero(held)

    def reserved_blocks(self) -> npt.NDArray[np.bool_]:
        """`[num_blocks]`: whether a running sequence's table holds the block."""
        held = np.zeros(self.pool.num_blocks, dtype=np.bool_)
        for sequence in self.running:
            held[sequence.block_table] = True
        return held


def _is_prefilling(sequence: Sequence) -> bool:
    return sequence.has_started and sequence.num_pending > 0 and not sequence.is_decoding
