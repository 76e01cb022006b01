"""The proofs of isolation: a run's own step plans are replayed with something changed that must not matter.

alone vs packed     each question once more by itself, through the dense oracle: logits within a bound, equal tokens
neighbour swap      every token of all other questions replaced by random ones: my logits bit-identical
poison              every key and value that is not mine, and every unused slot of my blocks, is NaN: bit-identical

The audit has its own KV storage and block pool, sized for the stories, and draws greedily, whatever the questions'
temperatures: its subject is who reads whom.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import numpy as np
import torch

from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.faults import Fault
from kev_engine.isolation.layout import PackedLayout
from kev_engine.isolation.mask import count_allowed, dense_step
from kev_engine.isolation.plan import StepPlan
from kev_engine.models.int8 import has_int8
from kev_engine.runtime.events import SegmentInfo
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.sequence import Sequence

ALONE_BOUND = 1e-3
"""Largest |Δlogit| in fp32 between a packed and a lone forward, whose sums run in another order."""
NOISE_MARGIN = 2.0
"""In another dtype: the bound in parts of the noise floor, which is how far a lone question's logits move when its own
steps are cut differently. Packing moves them by 0.97 to 1.02 of the floor wherever that is above the fp32 bound."""
NEW_TOKENS = 16
"""How many tokens of each answer the audit draws at most; each proof replays all of their steps once a question."""


@dataclass(frozen=True)
class Proof:
    """What the proofs measured for one question, as the largest |Δlogit| over its sampled rows.

    `ties` counts the tokens that differ from the lone run where its top two logits are closer than `alone_bound`, which
    is ALONE_BOUND or, where weights or KV are not fp32, at least NOISE_MARGIN times the measured noise floor.
    `token_ids` is the answer that the audited run drew, greedily.
    """

    question_id: str
    alone_max_abs: float
    alone_tokens_equal: bool
    ties: int
    neighbour_max_abs: float
    poison_max_abs: float
    alone_bound: float
    token_ids: tuple[int, ...] = ()

    @property
    def is_isolated(self) -> bool:
        within = self.alone_max_abs <= self.alone_bound
        return within and self.alone_tokens_equal and self.neighbour_max_abs == 0 and self.poison_max_abs == 0


@dataclass(frozen=True, eq=False)
class Executed:
    """One step of the audited run as the model was fed it, and the segment of the layout that each chunk belongs to."""

    plan: StepPlan
    segments: tuple[int, ...]


@dataclass(frozen=True)
class Audit:
    """The verdict over a run.

    `allowed_cells` counts the prompt layout. `foreign_cells` are the (query, key) pairs of all executed steps that join
    stories which may not read each other, by the owner of the block each key lies in; `foreign_cells_allowed` those of
    them that attention was allowed to read. `steps` are the executed forwards, `segments` describe those of `layout`.
    """

    fault: str | None
    questions: tuple[Proof, ...]
    layout: PackedLayout
    allowed_cells: int
    foreign_cells: int
    foreign_cells_allowed: int
    num_steps: int
    max_new_tokens: int
    steps: tuple[Executed, ...] = ()
    segments: tuple[SegmentInfo, ...] = ()

    @property
    def isolated(self) -> bool:
        return self.foreign_cells_allowed == 0 and all(proof.is_isolated for proof in self.questions)

    def to_json(self) -> dict[str, object]:
        """The verdict as the command line prints it; an endless difference is the largest double, JSON has none."""
        return {
            "isolated": self.isolated,
            "fault": self.fault,
            "questions": [
                {
                    "id": proof.question_id, "alone_max_abs": _finite(proof.alone_max_abs),
                    "alone_bound": proof.alone_bound,
                    "alone_tokens_equal": proof.alone_tokens_equal, "ties": proof.ties,
                    "neighbour_max_abs": _finite(proof.neighbour_max_abs),
                    "poison_max_abs": _finite(proof.poison_max_abs),
                }
                for proof in self.questions
            ],
            "allowed_cells": self.allowed_cells,
            "layout": {
                "segments": [list(interval) for interval in self.layout.intervals],
                "position_ids": self.layout.position_ids.tolist(),
                "cu_seqlens": self.layout.cu_seqlens.tolist(),
            },
        }


@dataclass(frozen=True, eq=False)
class Subject:
    """One story under audit: the question (sample) it belongs to, or none for a shared context."""

    question_id: str | None
    sequence: Sequence
    stop_token_ids: frozenset[int]


@dataclass(frozen=True, eq=False)
class Record:
    """One executed step, the logits `[R, V]` it gave, and the sequence that wrote each block, by id."""

    scheduled: Scheduled
    logits: torch.Tensor
    block_owners: np.ndarray[tuple[int], np.dtype[np.int64]]


class Auditor:
    """Replays the steps of a few stories on storage of its own.

    `on_forward(done, total)` is called before each forward; total is 0 while the run itself is being recorded. What it
    raises ends the audit.
    """

    def __init__(
        self, runner: ModelRunner, shape: KVShape, subjects: Many[Subject], block_size: int, token_budget: int,
        max_adapters: int, vocab_size: int, fault: Fault | None = None,
        on_forward: Callable[[int, int], None] | None = None,
    ) -> None:
        self.clean = runner.dense()
        self.unbroken = runner
        self.runner = runner if fault is None else runner.dense(fault)
        self.fault = fault
        self.subjects = subjects
        self.vocab_size = vocab_size
        self.shape = shape
        sequences = [subject.sequence for subject in subjects]
        blocks = sum(-(-sequence.num_projected // block_size) for sequence in sequences)
        self.pool = BlockPool(blocks + 1, block_size)
        self.storage = KVStorage(shape, blocks + 1, block_size, runner.device)
        self.scheduler = Scheduler(self.pool, token_budget, max_adapters)
        lengths = [sequence.num_prompt - sequence.num_inherited for sequence in sequences]
        starts = itertools.accumulate(lengths, initial=0)
        self.row_starts = {sequence.id: start for sequence, start in zip(sequences, starts, strict=False)}
        self._on_forward = on_forward
        self._num_done = self._num_forwards = 0
        self.records = self._record()

    def prove(self, layout: PackedLayout, max_new_tokens: int, together: bool = False) -> Audit:
        """Run every proof for every question; `together`: neighbour swap and poison in one replay, half the forwards.

        Then it is not known which of the two was seen, and both are said to have moved the logits.
        """
        asked = [subject for subject in self.subjects if subject.question_id is not None]
        lone_steps = 0 if self._is_exact else sum(subject.sequence.num_output for subject in asked)
        # For each question one lone forward, its steps once more where noise is measured, all recorded steps a replay.
        self._num_forwards = len(asked) * (1 + (2 - together) * len(self.records)) + lone_steps
        alone = [self._lone_logits(self.clean, subject.sequence) for subject in asked]
        bound = self._bound(asked, alone)
        proofs = tuple(
            self._proof(subject, logits, bound, together) for subject, logits in zip(asked, alone, strict=True)
        )
        name = None if self.fault is None else self.fault.name
        counts = np.sum([self._count_foreign(record) for record in self.records], axis=0)
        return Audit(
            name, proofs, layout, count_allowed(layout), int(counts[0]), int(counts[1]), len(self.records),
            max_new_tokens, tuple(self._executed(record) for record in self.records),
        )

    def _executed(self, record: Record) -> Executed:
        segments = {subject.sequence: index for index, subject in enumerate(self.subjects)}
        return Executed(self._fed(record.scheduled.plan), tuple(segments[one] for one in record.scheduled.sequences))

    def _count_foreign(self, record: Record) -> tuple[int, int]:
        """The step's cells that join strangers, and how many of them attention was allowed to read."""
        plan = record.scheduled.plan
        allowed = dense_step(plan)
        if self.fault is not None:
            allowed = self.fault.broken_cells(plan, allowed)
        blocks = plan.block_tables[plan.key_sequences, plan.key_positions // plan.block_size]
        owners = record.block_owners[blocks]  # [K]
        total = readable = 0
        for index, sequence in enumerate(record.scheduled.sequences):
            rows = slice(*plan.cu_seqlens_q[index : index + 2])
            strangers = ~np.isin(owners, [relative.id for relative in sequence.lineage])
            total += (rows.stop - rows.start) * int(strangers.sum())
            readable += int(allowed[rows, strangers].sum())
        return total, readable

    @property
    def _is_exact(self) -> bool:
        is_float32 = self.shape.dtype == self.shape.stored == torch.float32
        return is_float32 and not has_int8(self.unbroken.model)

    def _bound(self, asked: Many[Subject], alone: Many[torch.Tensor]) -> float:
        """How far packed logits may lie from lone ones; the noise floor is measured without any neighbour."""
        if self._is_exact:
            return ALONE_BOUND
        floor = max(
            _max_abs(self._lone_logits(self.unbroken, subject.sequence, in_steps=True), logits)
            for subject, logits in zip(asked, alone, strict=True)
        )
        return max(ALONE_BOUND, NOISE_MARGIN * floor) if math.isfinite(floor) else ALONE_BOUND

    def _proof(self, subject: Subject, lone: torch.Tensor, bound: float, together: bool) -> Proof:
        assert subject.question_id is not None
        alone, equal, ties = self._alone(subject.sequence, lone, bound)
        rng = np.random.default_rng(len(subject.sequence.tokens))
        swapped = self._replay(subject.sequence, rng=rng, poison=together)
        poisoned = swapped if together else self._replay(subject.sequence, poison=True)
        drawn = tuple(subject.sequence.tokens[subject.sequence.num_prompt:])
        return Proof(subject.question_id, alone, equal, ties, swapped, poisoned, bound, drawn)

    def _record(self) -> list[Record]:
        """Answer the questions greedily and keep every plan with its logits."""
        stops = {subject.sequence: subject.stop_token_ids for subject in self.subjects}
        self.scheduler.submit(stops)
        records = []
        while (scheduled := self.scheduler.next_step()) is not None:
            self._tell()
            logits = self._run(scheduled)
            records.append(Record(scheduled, logits, self.scheduler.block_owners.copy()))
            self.scheduler.commit(scheduled)
            for sequence, row in zip(scheduled.sampled, logits, strict=True):
                token = int(row.argmax())
                sequence.tokens.append(token)
                if token in stops[sequence] or sequence.num_output >= sequence.max_new_tokens:
                    self.scheduler.finish(sequence)
        return records

    def _run(self, scheduled: Scheduled, input_ids: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
             ) -> torch.Tensor:
        plan = scheduled.plan if input_ids is None else replace(scheduled.plan, input_ids=input_ids)
        return self.runner.run(self._fed(plan), self.storage)

    def _fed(self, plan: StepPlan) -> StepPlan:
        """The plan as the fault leaves it."""
        return plan if self.fault is None else self.fault.broken_plan(plan, self.row_starts)

    def _tell(self) -> None:
        """Say how far the proofs are, before the next forward of theirs."""
        if self._on_forward is not None:
            self._on_forward(self._num_done, self._num_forwards)
        self._num_done += self._num_forwards > 0

    def _alone(self, sequence: Sequence, lone: torch.Tensor, bound: float) -> tuple[float, bool, int]:
        """The packed logits against the lone ones `[N, V]`: max |Δlogit|, tokens equal, ties."""
        packed = self._rows(self.records, sequence)  # [N, V]
        top = lone.float().topk(2, dim=-1).values
        differing = packed.argmax(dim=-1) != lone.argmax(dim=-1)
        close = top[:, 0] - top[:, 1] < bound
        return _max_abs(packed, lone), not bool((differing & ~close).any()), int((differing & close).sum())

    def _lone_logits(self, runner: ModelRunner, sequence: Sequence, in_steps: bool = False) -> torch.Tensor:
        """The story by itself, tokens forced, in one forward or its prompt and then a token a step: `[N, V]`."""
        size = self.pool.block_size
        count = sequence.num_prompt if in_steps else len(sequence.tokens) - 1
        pool = BlockPool(-(-len(sequence.tokens) // size) + 1, size)
        storage = KVStorage(self.shape, pool.num_blocks, size, self.storage.device)
        scheduler = Scheduler(pool, token_budget=count)
        story = Sequence(sequence.tokens[:count], len(sequence.tokens) - count, sequence.adapter_id)
        scheduler.submit([story])
        sample_rows = np.arange(sequence.num_prompt - 1, count, dtype=np.int64)
        logits: list[torch.Tensor] = []
        for token in sequence.tokens[count:]:
            scheduled = scheduler.next_step()
            assert scheduled is not None
            plan = scheduled.plan if logits else replace(scheduled.plan, sample_rows=sample_rows)
            self._tell()
            logits.append(runner.run(plan, storage))
            scheduler.commit(scheduled)
            story.tokens.append(token)
        return torch.cat(logits)

    def _replay(self, sequence: Sequence, rng: np.random.Generator | None = None, poison: bool = False) -> float:
        """All recorded steps once more, with foreign tokens or foreign memory changed: max |Δlogit| of my rows."""
        mine = sequence.lineage
        if poison:
            self.storage.fill(range(1, self.pool.num_blocks), float("nan"))
        worst = 0.0
        for record in self.records:
            plan = record.scheduled.plan
            input_ids = plan.input_ids
            if rng is not None:
                foreign = np.array([owner not in mine for owner in record.scheduled.sequences])[plan.segment_ids]
                random = rng.integers(0, self.vocab_size, size=len(input_ids), dtype=np.int64)
                input_ids = np.where(foreign, random, input_ids)
            if poison:
                self._poison(record.scheduled, mine)
            self._tell()
            logits = self._run(record.scheduled, input_ids)
            here = [row for row, owner in enumerate(record.scheduled.sampled) if owner is sequence]
            if here:
                worst = max(worst, _max_abs(logits[here], record.logits[here]))
        return worst

    def _poison(self, scheduled: Scheduled, mine: Many[Sequence]) -> None:
        """Fill what no sequence of `mine` has stored with NaN, as it stands before this step."""
        size = self.pool.block_size
        kept = np.zeros(self.pool.num_blocks * size, dtype=np.bool_)
        kept[:size] = True
        for record in self.records:
            if record.scheduled is scheduled:
                break
            for chunk, owner in zip(record.scheduled.plan.chunks, record.scheduled.sequences, strict=True):
                if owner in mine:
                    index = record.scheduled.sequences.index(owner)
                    table = record.scheduled.plan.block_tables[index].astype(np.int64)
                    where = np.arange(chunk.num_keys)
                    kept[table[where // size] * size + where % size] = True
        self.storage.fill_slots(torch.from_numpy(np.flatnonzero(~kept)), float("nan"))

    @staticmethod
    def _rows(records: Many[Record], sequence: Sequence) -> torch.Tensor:
        rows = [
            record.logits[row]
            for record in records for row, owner in enumerate(record.scheduled.sampled) if owner is sequence
        ]
        return torch.stack(rows)


def _finite(value: float) -> float:
    return min(value, sys.float_info.max)


def _max_abs(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference; infinite where one side is not a finite number and the other is another one."""
    difference = (left.float() - right.float()).abs()
    same = (left == right) | (left.isnan() & right.isnan())
    return float(torch.where(same, 0.0, difference.nan_to_num(nan=float("inf"))).max())
