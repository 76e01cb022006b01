"""Worker: the one thread that owns weights, adapters and cache, and turns steps into events."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from kev_engine.cache.storage import KVStorage
from kev_engine.errors import EngineClosed, EngineFailed, KevError
from kev_engine.runtime.events import Prefilling, TextDelta
from kev_engine.runtime.metrics import Batch, batch
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.reply import Reply
from kev_engine.runtime.run import ActiveRun, StepTimes
from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.scores import scored_rows
from kev_engine.sampling.sampler import Draw, sample

LONG_PREFILL = 256
"""Prompt tokens from which on a forward tells how far it is: half a second of the embedded model on two cores."""
LAYERS_TOLD_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class Submit:
    run: ActiveRun


@dataclass(frozen=True, eq=False)
class Cancel:
    """End a run, or one question of it, before the next step."""

    run: ActiveRun
    question_id: str | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """Work that needs the engine to itself: it starts when no run is active, and new runs wait for it."""

    work: Callable[[], Any]
    done: Future[Any]


@dataclass(frozen=True)
class Close:
    pass


Command = Submit | Cancel | Job | Close


class Worker:
    """Takes commands from any thread and runs steps until nothing is left to do, then waits."""

    def __init__(self, runner: ModelRunner, storage: KVStorage, scheduler: Scheduler, check: bool = False) -> None:
        self.runner = runner
        self.storage = storage
        self.scheduler = scheduler
        self.check = check
        """Prove the block pool's invariants after every step (tests)."""
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._door = threading.Lock()
        """Held while something is handed over, so that nothing comes after the end and nobody overfills the queue."""
        self._is_over = False
        self._num_sent = 0
        """Sequences of the runs that were submitted and that the scheduler does not know of yet."""
        self._runs: list[ActiveRun] = []
        self._held: deque[Submit] = deque()
        self._jobs: deque[Job] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._loop, name="kev-worker", daemon=True)
        self._thread.start()

    def submit(self, run: ActiveRun, max_waiting: int) -> bool:
        """Hand a run over, unless more than `max_waiting` sequences would then wait; whether it was.

        Raises EngineClosed.
        """
        with self._door:
            if self._is_over:
                raise EngineClosed
            if self.num_waiting + len(run.sequences) > max_waiting:
                return False
            self._num_sent += len(run.sequences)
            self._inbox.put(Submit(run))
            return True

    def send(self, command: Cancel | Job | Close) -> None:
        """Hand a command over; it takes effect before the next step. A closed worker ends a job with EngineClosed."""
        with self._door:
            if not self._is_over:
                self._inbox.put(command)
            elif isinstance(command, Job):
                command.done.set_exception(EngineClosed())

    def close(self) -> None:
        """End every run with EngineClosed and wait until the thread is gone."""
        self.send(Close())
        self._thread.join()

    @property
    def num_waiting(self) -> int:
        """Sequences that were submitted and have not started, as of the last step."""
        return self._num_sent + len(self.scheduler.waiting)

    def _loop(self) -> None:
        try:
            self._serve()
        finally:
            # Whatever ended it: nobody may wait for a thread that is gone.
            self._shut_down()

    def _serve(self) -> None:
        while not self._is_closing:
            self._take_commands(wait=not self._runs and not self._held and not self._jobs)
            if self._jobs and not self._runs:
                self._work(self._jobs.popleft())
            elif not self._jobs:
                while self._held:
                    run = self._held.popleft().run
                    self._begin(run)
                    with self._door:
                        self._num_sent -= len(run.sequences)
            if self._runs:
                self._step()

    def _take_commands(self, wait: bool) -> None:
        while True:
            try:
                command = self._inbox.get(block=wait)
            except queue.Empty:
                return
            wait = False
            match command:
                case Submit():
                    self._held.append(command)
                case Cancel(run, question_id):
                    self._cancel(run, question_id)
                case Job():
                    self._jobs.append(command)
                case Close():
                    self._is_closing = True

    def _begin(self, run: ActiveRun) -> None:
        if run.is_over:
            return
        for refused in run.refused:
            run.events.put(refused)
        self._runs.append(run)
        self.scheduler.submit(run.sequences)
        self._retire(run)

    def _cancel(self, run: ActiveRun, question_id: str | None) -> None:
        for reply in run.replies:
            if reply.finish_reason is None and question_id in (None, reply.question.id):
                self._tell(run, reply.cancel())
                run.finish(reply, self.scheduler)
        self._retire(run)

    def _work(self, job: Job) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        try:
            job.done.set_result(job.work())
        except BaseException as error:
            job.done.set_exception(error)

    def _step(self) -> None:
        scheduled: Scheduled | None = None
        try:
            started = time.perf_counter()
            scheduled = self.scheduler.next_step()
            if scheduled is None:
                raise RuntimeError("runs are active but no sequence can take part in a step")
            planned = time.perf_counter()
            for reply in self._replies(scheduled):
                reply.scheduled_at = reply.scheduled_at or planned
            logits = self._forward(scheduled)
            forwarded = time.perf_counter()
            self.scheduler.commit(scheduled)
            made_of = batch(scheduled, self.scheduler)
            drawn = self._draw(scheduled, logits)
            sampled = time.perf_counter()
            times = StepTimes((planned - started) * 1e3, (forwarded - planned) * 1e3, (sampled - forwarded) * 1e3)
            for run in list(self._runs):
                self._advance(run, scheduled, drawn, times, made_of)
            if self.check:
                self.scheduler.check()
        except BaseException as error:
            self._fail(scheduled, error)

    def _replies(self, scheduled: Scheduled) -> list[Reply]:
        chosen = set(scheduled.sequences)
        return [reply for run in self._runs for reply in run.replies if reply.sequence in chosen]

    def _forward(self, scheduled: Scheduled) -> torch.Tensor:
        """The logits `[R, V]` of the step; its prompt tokens are scored on the way where that was asked for."""
        on_layer = self._layers_of(scheduled)
        scored = scored_rows(scheduled, (reply for run in self._runs for reply in run.replies))
        if scored is None:
            return self.runner.run(scheduled.plan, self.storage, on_layer)
        logits, logprobs = self.runner.run_scored(scheduled.plan, self.storage, scored.rows, scored.targets, on_layer)
        for reply, position, logprob in zip(scored.replies, scored.positions.tolist(), logprobs, strict=True):
            if reply.finish_reason is None:
                reply.score(position, logprob)
        return logits

    def _layers_of(self, scheduled: Scheduled) -> Callable[[int], None] | None:
        """What tells the step's runs how far it is; None for a step that is soon over, or that a device computes:
        there, a layer that has begun here has only been asked for."""
        plan = scheduled.plan
        if plan.num_tokens - plan.num_decode < LONG_PREFILL or self.runner.device.type != "cpu":
            return None
        runs = [(run, run.segments(scheduled)) for run in self._runs if run.takes_part(scheduled)]
        next_at = 0.0

        def on_layer(index: int) -> None:
            nonlocal next_at
            now = time.perf_counter()
            if now >= next_at:
                next_at = now + LAYERS_TOLD_SECONDS
                for run, segments in runs:
                    run.events.put(Prefilling(plan, segments, index + 1, len(self.storage.keys)))

        return on_layer

    def _draw(self, scheduled: Scheduled, logits: torch.Tensor) -> dict[int, list[Draw]]:
        """What the rows of each sampled sequence drew, by sequence id."""
        by_sequence = {reply.sequence: reply for run in self._runs for reply in run.replies}
        num_rows = Counter(scheduled.sampled)
        if not num_rows:
            return {}
        rows = [row for sequence, count in num_rows.items() for row in by_sequence[sequence].rows(count)]
        draws = iter(sample(logits, rows).draws)
        return {sequence.id: list(islice(draws, count)) for sequence, count in num_rows.items()}

    def _advance(
        self, run: ActiveRun, scheduled: Scheduled, drawn: dict[int, list[Draw]], times: StepTimes, made_of: Batch
    ) -> None:
        started = time.perf_counter()
        for reply in run.replies:
            if reply.finish_reason is None and reply.sequence.id in drawn:
                self._tell(run, reply.take(drawn[reply.sequence.id]))
        run.text_ms += (time.perf_counter() - started) * 1e3
        run.record(scheduled, self.scheduler, self.storage.bytes_per_block, times, made_of)
        for reply in run.replies:
            if reply.finish_reason is not None and not reply.sequence.is_finished:
                run.finish(reply, self.scheduler)
        self._retire(run)

    def _tell(self, run: ActiveRun, delta: TextDelta) -> None:
        if delta.text or delta.token_ids:
            run.events.put(delta)

    def _retire(self, run: ActiveRun, error: KevError | None = None) -> None:
        if error is None and not run.is_done:
            return
        run.close(self.scheduler, error)
        if run in self._runs:
            self._runs.remove(run)

    def _fail(self, scheduled: Scheduled | None, error: BaseException) -> None:
        """End every run that took part in the failed step; the others go on."""
        for run in list(self._runs):
            if scheduled is None or run.takes_part(scheduled):
                self._retire(run, EngineFailed(error))

    def _shut_down(self) -> None:
        with self._door:
            self._is_over = True
        self._take_commands(wait=False)
        for run in [*self._runs, *(submit.run for submit in self._held)]:
            # One that cannot be closed has told its reader all the same.
            with suppress(Exception):
                self._retire(run, EngineClosed())
        for job in self._jobs:
            job.done.set_exception(EngineClosed())
