"""ActiveRun: the questions of one caller on their way through the worker, and the queue its events go to."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from kev_engine.errors import EngineFailed, KevError
from kev_engine.isolation.layout import PackedLayout
from kev_engine.runtime.events import FREE, OTHERS, RESERVED, Event, Finished, KVUsage, Refused, RunFinished, Step
from kev_engine.runtime.metrics import Batch, reuse
from kev_engine.runtime.reply import Reply
from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.sequence import Sequence
from kev_engine.schema import RunStats


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of one step by phase."""

    plan_ms: float
    forward_ms: float
    sample_ms: float


@dataclass(eq=False)
class ActiveRun:
    """Owned by the worker once it was submitted; only `events` is read elsewhere.

    `sequences[k]` computes segment k of `layout`; their ids are consecutive. `refused` holds the questions that never
    ran. The last thing in `events` is RunFinished or an error that ended the whole run.
    """

    sequences: list[Sequence]
    replies: list[Reply]
    layout: PackedLayout
    blank_stats: RunStats
    refused: tuple[Refused, ...]
    release: Callable[[], None]
    """Gives back what the run holds outside of the scheduler: its adapter versions."""
    events: queue.SimpleQueue[Event | KevError] = field(default_factory=queue.SimpleQueue)
    started_at: float = field(default_factory=time.perf_counter)
    tokens_per_forward: list[int] = field(default_factory=list)
    sequences_per_forward: list[int] = field(default_factory=list)
    kv_bytes_peak: int = 0
    plan_ms: float = 0.0
    forward_ms: float = 0.0
    sample_ms: float = 0.0
    text_ms: float = 0.0
    is_over: bool = False

    @property
    def first_id(self) -> int:
        return self.sequences[0].id if self.sequences else 0

    def owns(self, sequence: Sequence) -> bool:
        return self.first_id <= sequence.id < self.first_id + len(self.sequences)

    @property
    def is_done(self) -> bool:
        return all(reply.finish_reason is not None for reply in self.replies)

    def takes_part(self, scheduled: Scheduled) -> bool:
        return any(self.owns(sequence) for sequence in scheduled.sequences)

    def segments(self, scheduled: Scheduled) -> tuple[int, ...]:
        """The segment of this run that each chunk of a step belongs to, or OTHERS."""
        return tuple(
            sequence.id - self.first_id if self.owns(sequence) else OTHERS for sequence in scheduled.sequences
        )

    def record(
        self, scheduled: Scheduled, scheduler: Scheduler, bytes_per_block: int, times: StepTimes, batch: Batch
    ) -> None:
        """Take note of one forward and tell the reader, if any of its sequences took part in it."""
        if not self.takes_part(scheduled):
            return
        index = len(self.tokens_per_forward)
        self.tokens_per_forward.append(scheduled.plan.num_tokens)
        self.sequences_per_forward.append(scheduled.plan.num_sequences)
        self.plan_ms += times.plan_ms
        self.forward_ms += times.forward_ms
        self.sample_ms += times.sample_ms
        usage = self._usage(scheduler, bytes_per_block)
        self.events.put(Step(
            index=index,
            plan=scheduled.plan,
            segments=self.segments(scheduled),
            lengths=tuple(len(sequence.tokens) - sequence.num_inherited for sequence in self.sequences),
            kv=usage,
            plan_ms=times.plan_ms,
            forward_ms=times.forward_ms,
            sample_ms=times.sample_ms,
            cached=tuple(sequence.num_cached for sequence in self.sequences),
            batch=batch,
            dropped=tuple(
                chunk.num_keys - sequence.num_computed if self.owns(sequence) else 0
                for chunk, sequence in zip(scheduled.plan.chunks, scheduled.sequences, strict=True)
            ),
        ))

    def _usage(self, scheduler: Scheduler, bytes_per_block: int) -> KVUsage:
        pool = scheduler.pool
        used = scheduler.used_blocks()
        owner = np.where(pool.refs > 0, RESERVED, FREE).astype(np.int64)
        owner[0] = FREE
        mine = scheduler.block_owners[used] - self.first_id
        owner[used] = np.where((mine >= 0) & (mine < len(self.sequences)), mine, OTHERS)
        by_segment = np.bincount(owner[owner >= 0], minlength=len(self.sequences)) * bytes_per_block
        self.kv_bytes_peak = max(self.kv_bytes_peak, int(by_segment.sum()))
        return KVUsage(
            bytes_used=len(used) * bytes_per_block,
            bytes_reserved=pool.num_used * bytes_per_block,
            bytes_budget=pool.num_usable * bytes_per_block,
            bytes_peak=self.kv_bytes_peak,
            bytes_by_segment=tuple(by_segment.tolist()),
            bytes_others=int((owner == OTHERS).sum()) * bytes_per_block,
            block_owner=owner,
            block_refs=pool.refs.copy(),
            block_generation=pool.generations.copy(),
            bytes_kept=pool.num_kept * bytes_per_block,
        )

    def close(self, scheduler: Scheduler, error: KevError | None = None) -> None:
        """End the run, release every sequence that is left and tell the reader. Closing twice changes nothing."""
        if self.is_over:
            return
        self.is_over = True
        end: Event | KevError | None = error
        try:
            for sequence in self.sequences:
                scheduler.finish(sequence)
            self.release()
            end = end or RunFinished(self._stats(scheduler))
        except BaseException as cause:
            end = end or EngineFailed(cause)
            raise
        finally:
            assert end is not None
            self.events.put(end)

    def _stats(self, scheduler: Scheduler) -> RunStats:
        owners = scheduler.block_owners - self.first_id
        mine = (owners >= 0) & (owners < len(self.sequences)) & (scheduler.pool.refs > 0)
        leaked = mine & ~scheduler.reserved_blocks()
        taken = reuse(self.sequences)
        drafters = [reply.drafter for reply in self.replies if reply.drafter is not None]
        return replace(
            self.blank_stats,
            seconds=time.perf_counter() - self.started_at,
            tokens_per_forward=tuple(self.tokens_per_forward),
            sequences_per_forward=tuple(self.sequences_per_forward),
            kv_bytes_peak=self.kv_bytes_peak,
            blocks_leaked=int(leaked.sum()),
            plan_ms=self.plan_ms, forward_ms=self.forward_ms, sample_ms=self.sample_ms, text_ms=self.text_ms,
            prefix_hits=taken.prefix_hits, cached_tokens=taken.cached_tokens, preemptions=taken.preemptions,
            draft_proposed=sum(drafter.num_proposed for drafter in drafters),
            draft_accepted=sum(drafter.num_accepted for drafter in drafters),
        )

    def finish(self, reply: Reply, scheduler: Scheduler) -> None:
        """Release the reply's sequence at once and hand its answer to the reader."""
        scheduler.finish(reply.sequence, is_sound=reply.error is None)
        if reply.error is not None:
            self.events.put(Refused(reply.question.id, reply.error, reply.answer()))
        else:
            self.events.put(Finished(reply.answer()))
