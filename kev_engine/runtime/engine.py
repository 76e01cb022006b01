"""Engine: what callers hold. Encodes questions on their thread, hands runs to the worker, streams events back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kev_engine.adapters.pool import AdapterInfo, AdapterPool, require_name
from kev_engine.adapters.router import attach
from kev_engine.attention.base import ATTN_IMPLEMENTATION, register
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.prefix import PrefixCache
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.config import EngineConfig
from kev_engine.errors import EngineBusy, EngineClosed, KevError, TooManyQuestions
from kev_engine.isolation.faults import fault_named
from kev_engine.models.int8 import use_int8, weight_bytes
from kev_engine.models.load import load
from kev_engine.models.memory import available_bytes
from kev_engine.models.prepare import prepare
from kev_engine.models.progress import Progress, silent
from kev_engine.models.sources import resolve
from kev_engine.models.tokens import untrained_ids
from kev_engine.runtime import budget
from kev_engine.runtime import machine as machines
from kev_engine.runtime.adapter_effect import PROMPT, AdapterEffect, measure
from kev_engine.runtime.adapter_source import AdapterSource, read_source
from kev_engine.runtime.apart import apart
from kev_engine.runtime.audit import NEW_TOKENS, Audit, Auditor
from kev_engine.runtime.audit_stream import AuditStream
from kev_engine.runtime.entry import require_isolation
from kev_engine.runtime.events import Event, Finished, PlanMade, Refused, RunFinished
from kev_engine.runtime.identity import identity
from kev_engine.runtime.intake import Intake, Intaken
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.policy import POLICIES
from kev_engine.runtime.profile import Profile
from kev_engine.runtime.run import ActiveRun
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.worker import Cancel, Job, Worker
from kev_engine.sampling.temperature import Temperature
from kev_engine.schema import Answer, Question, Run, RunStats, SharedContext


@dataclass(frozen=True)
class EngineInfo:
    """What is running: the model, where, behind which backend and with how much memory."""

    model: str
    digest: str
    backend: str
    backend_reason: str
    dtype: str
    kv_dtype: str
    device: str
    threads: int
    max_context: int
    vocab_size: int
    kv_bytes_budget: int
    bytes_per_token: int
    block_size: int
    load_seconds: float
    weight_bytes: int = 0
    body_weights: int = 0
    """Weights of the layers, which every token passes; `head_weights` are those that turn it into logits."""
    head_weights: int = 0
    num_layers: int = 0
    num_heads: int = 0
    head_dim: int = 0
    kernels: str = ""
    """Whether the compiled kernels are in use, and why not."""


class RunStream:
    """The events of one run, in order; iterating ends after RunFinished. Closing it cancels what is left.

    Raises the error that ended the whole run (EngineFailed, EngineClosed) from the iteration.
    """

    def __init__(self, worker: Worker, run: ActiveRun, plan: PlanMade) -> None:
        self._worker = worker
        self._run = run
        self._plan = plan
        self._events = self._iterate()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def __next__(self) -> Event:
        return next(self._events)

    def _iterate(self) -> Iterator[Event]:
        try:
            yield self._plan
            while True:
                event = self._run.events.get()
                if isinstance(event, KevError):
                    raise event
                yield event
                if isinstance(event, RunFinished):
                    return
        finally:
            self.cancel()

    def cancel(self, question_id: str | None = None) -> None:
        """End one question, or all, before the next step; their answers come with finish_reason "cancelled"."""
        self._worker.send(Cancel(self._run, question_id))

    def close(self) -> None:
        """Cancel everything and stop iterating."""
        self.cancel()
        self._events.close()  # type: ignore[attr-defined]


class Engine:
    """Loads a model and answers runs of questions, several at a time. Safe to call from any thread."""

    def __init__(self, config: EngineConfig | None = None, progress: Progress = silent, check: bool = False) -> None:
        self.config = config if config is not None else EngineConfig.from_env()
        apart(lambda: self._load(progress, check))

    def _load(self, progress: Progress, check: bool) -> None:
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        register()
        device = budget.pick_device(self.config.device)
        dtype = budget.pick_dtype(self.config.dtype, device)
        kv_dtype = budget.pick_kv_dtype(self.config.kv_dtype, self.config.dtype, device)
        source = resolve(self.config.model, self.config.home, progress, self.config.hub)
        loaded = load(source, dtype, device, progress, attn_implementation=ATTN_IMPLEMENTATION)
        facts = loaded.facts
        self._facts = facts
        self._tokenizer = loaded.tokenizer
        self.temperature = Temperature(self.config.temperature)
        self._shape = KVShape(facts.num_layers, facts.num_kv_heads, facts.head_dim, dtype, kv_dtype)
        kernels, kernels_reason = budget.pick_kernels(self.config.kernels, self.config.home, device, dtype)
        untrained = untrained_ids(loaded.model.get_input_embeddings().weight, facts.stop_token_ids)
        prepare(loaded.model, kernels, loaded.mapped)
        if self.config.dtype == budget.INT8:
            use_int8(loaded.model, kernels, loaded.mapped)
        backend, reason = budget.pick_backend(self.config.backend, facts.needs, device, self._shape, kernels)
        block_size = budget.pick_block_size(self.config.block_size, backend)
        block_bytes = self._shape.bytes_per_token * block_size
        num_blocks = budget.num_blocks(self.config.kv_budget_bytes, block_bytes, device)
        self._pool = BlockPool(num_blocks, block_size)
        self.adapters = AdapterPool(loaded.model, self.config.adapter_pool_size, untrained)
        router = attach(loaded.model, self.adapters, kernels)
        self._runner = ModelRunner(loaded.model, backend, router, frozenset(facts.layer_windows), device)
        require_isolation(self._runner, self._shape, block_size, facts)
        self._intake = Intake(loaded.tokenizer, facts, self._pool, block_bytes, self.adapters, self.temperature,
                              identity(loaded, self._shape.stored))
        self.info = EngineInfo(
            model=source.name, digest=source.digest, backend=backend.name, backend_reason=reason,
            dtype=self.config.dtype, kv_dtype=str(kv_dtype).removeprefix("torch."), device=str(device),
            threads=torch.get_num_threads(), max_context=facts.max_context, vocab_size=facts.vocab_size,
            kv_bytes_budget=self._pool.num_usable * block_bytes, bytes_per_token=self._shape.bytes_per_token,
            block_size=block_size, load_seconds=loaded.seconds,
            weight_bytes=weight_bytes(loaded.model), kernels=kernels_reason,
            body_weights=_body_weights(loaded.model),
            head_weights=loaded.model.get_output_embeddings().weight.numel(),
            num_layers=facts.num_layers, num_heads=facts.num_heads, head_dim=facts.head_dim,
        )
        self._machine: machines.Machine | None = None
        self._is_closed = False
        for name, path in self.config.adapters.items():
            self._take_adapter(name, path, progress)
        storage = KVStorage(self._shape, num_blocks, block_size, device, kernels)
        kept = self.config.prefix_cache_bytes
        num_kept = self._pool.num_usable // 2 if kept is None else kept // block_bytes
        scheduler = Scheduler(
            self._pool, self.config.token_budget, self.config.adapter_pool_size, self.config.prefill_chunk,
            POLICIES[self.config.policy], PrefixCache(self._pool, num_kept) if num_kept else None,
        )
        self._worker = Worker(self._runner, storage, scheduler, check)

    def load_adapter(self, name: str, source: AdapterSource, progress: Progress = silent) -> AdapterInfo:
        """Read an adapter from a folder, a `.zip`, loose files or a hub, and give it this name, while runs go on.

        Another adapter of that name is replaced; runs that use it keep it. Raises AdapterRefused and InvalidField, and
        then nothing has changed.
        """
        require_name(name)
        apart(lambda: self._take_adapter(name, source, progress))
        return self.adapters.info(name)

    def _take_adapter(self, name: str, source: AdapterSource, progress: Progress) -> None:
        self.adapters.take(name, read_source(source, name, progress, hub=self.config.hub))

    def adapter_effects(self, names: Sequence[str] | None = None, prompt: str = PROMPT) -> tuple[AdapterEffect, ...]:
        """How far each of these adapters (None: all) moves the logits of one prompt, pool by pool in one mixed pass.

        Has the engine to itself, as `audit` has. Raises UnknownAdapter, PromptTooLong and EngineClosed.
        """
        names = self.adapters.names() if names is None else names
        if not names:
            return ()
        asked = [Question(str(index), prompt, adapter=name, max_new_tokens=1) for index, name in enumerate(names)]
        taken = self._take(asked, ())
        try:
            if taken.refused:
                raise taken.refused[0].error
            versions = dict(zip(names, taken.held, strict=True))
            size = self.config.adapter_pool_size
            groups = [dict(list(versions.items())[start : start + size]) for start in range(0, len(versions), size)]
            token_ids = taken.stories[0].sequence.tokens

            def work() -> tuple[AdapterEffect, ...]:
                return tuple(itertools.chain.from_iterable(
                    measure(self._runner, self._shape, token_ids, group, self.info.block_size) for group in groups
                ))

            done: Future[tuple[AdapterEffect, ...]] = Future()
            self._worker.send(Job(work, done))
            return done.result()
        finally:
            self._intake.release(taken)

    def ask(self, questions: Sequence[Question], shared: Sequence[SharedContext] = ()) -> Run:
        """The answers, in the order asked (samples of one question behind each other), and the run's figures.

        A question that cannot be answered comes back with finish_reason "error" and the sentence; the others are
        answered. Raises InputError for a run that makes no sense as a whole, EngineBusy, EngineFailed, EngineClosed.
        """
        answers: dict[str, list[Answer]] = {question.id: [] for question in questions}
        stats = None
        for event in self.stream(questions, shared):
            if isinstance(event, Finished | Refused):
                answers[event.answer.question_id].append(event.answer)
            elif isinstance(event, RunFinished):
                stats = event.stats
        assert stats is not None
        ordered = [sorted(answers[question.id], key=lambda answer: answer.sample) for question in questions]
        return Run(tuple(itertools.chain.from_iterable(ordered)), stats)

    def stream(self, questions: Sequence[Question], shared: Sequence[SharedContext] = ()) -> RunStream:
        """The run's events as they happen; see RunStream. Raises as `ask` does."""
        taken = self._take(questions, shared)
        run = self._run(taken)
        segments = tuple(story.info for story in taken.stories)
        plan = PlanMade(run.layout, segments, taken.kv_bytes_predicted, self.info.kv_bytes_budget)
        try:
            if not self._worker.submit(run, self.config.max_waiting):
                used = self._pool.num_used * self.info.bytes_per_token * self.info.block_size
                waiting = self._worker.num_waiting
                raise EngineBusy(waiting, self.config.max_waiting, used, self.info.kv_bytes_budget)
        except KevError:
            self._intake.release(taken)
            raise
        return RunStream(self._worker, run, plan)

    def _run(self, taken: Intaken) -> ActiveRun:
        """What was taken in, as a run that the worker can begin."""
        stats = RunStats(
            model=self.info.model, backend=self.info.backend, dtype=self.info.dtype, kv_dtype=self.info.kv_dtype,
            kv_bytes_predicted=taken.kv_bytes_predicted, kv_bytes_budget=self.info.kv_bytes_budget,
        )
        return ActiveRun(
            [story.sequence for story in taken.stories], taken.replies, taken.layout, stats, taken.refused,
            release=lambda: self._intake.release(taken),
        )

    def audit(
        self, questions: Sequence[Question], shared: Sequence[SharedContext] = (), fault: str | None = None,
        max_new_tokens: int = NEW_TOKENS,
    ) -> Audit:
        """The proofs of isolation for these questions, with `fault` (a name of isolation/faults.py) injected or none.

        Has the engine to itself: runs that are under way end first, new ones wait. Raises InputError for the first
        question that cannot be asked, and for an unknown fault.
        """
        for event in self.audit_stream(questions, shared, fault, max_new_tokens):
            if isinstance(event, Audit):
                return event
        raise AssertionError("only a cancelled audit ends without a verdict, and nobody could cancel this one")

    def audit_stream(
        self, questions: Sequence[Question], shared: Sequence[SharedContext] = (), fault: str | None = None,
        max_new_tokens: int = NEW_TOKENS,
    ) -> AuditStream:
        """The same audit as it goes on: its progress, then the Audit. Raises as `audit` does."""
        broken = None if fault is None else fault_named(fault)
        short = [replace(item, max_new_tokens=min(item.max_new_tokens, max_new_tokens)) for item in questions]
        taken = self._take(short, shared)
        if taken.refused:
            self._intake.release(taken)
            raise taken.refused[0].error

        def start(on_forward: Callable[[int, int], None], done: Future[Audit]) -> None:
            def tell(num_done: int, total: int) -> None:
                if self._is_closed:
                    raise EngineClosed
                on_forward(num_done, total)

            def prove() -> Audit:
                auditor = Auditor(
                    self._runner, self._shape, taken.subjects, self.info.block_size, self.config.token_budget,
                    self.config.adapter_pool_size, self._facts.vocab_size, broken, on_forward=tell,
                )
                segments = tuple(story.info for story in taken.stories)
                return replace(auditor.prove(taken.layout, max_new_tokens), segments=segments)

            done.add_done_callback(lambda _: self._intake.release(taken))
            self._worker.send(Job(prove, done))

        return AuditStream(start)

    @contextmanager
    def profiled(self, trace: Path) -> Iterator[Profile]:
        """A block whose runs are counted by phase; at its end a Chrome trace of them stands in the file `trace`.

        It begins and ends when no run is active.
        """
        profile, usual = Profile(self._runner), self._worker.runner

        def switch(runner: ModelRunner, then: Callable[[], None]) -> None:
            def work() -> None:
                self._worker.runner = runner
                then()

            done: Future[None] = Future()
            self._worker.send(Job(work, done))
            done.result()

        switch(profile.runner, profile.start)
        try:
            yield profile
        finally:
            switch(usual, lambda: profile.stop(trace))

    def _take(self, questions: Sequence[Question], shared: Sequence[SharedContext]) -> Intaken:
        if self._is_closed:
            raise EngineClosed
        if len(questions) > self.config.max_questions:
            raise TooManyQuestions(len(questions), self.config.max_questions)
        return self._intake.take(questions, shared)

    @property
    def tokenizer(self) -> Any:
        """The model's own tokenizer, to look things up in; nobody changes it."""
        return self._tokenizer

    def free_bytes(self) -> int | None:
        """Memory that can still be taken on the device, in bytes; None where the system does not tell."""
        device = torch.device(self.info.device)
        return budget.free_bytes(device) if device.type == "cuda" else available_bytes()

    def machine(self) -> machines.Machine:
        """What this device reaches, measured once, while no run is active; the first caller waits for that."""
        if self._machine is None:
            done: Future[machines.Machine] = Future()
            device, dtype = torch.device(self.info.device), self._shape.dtype
            self._worker.send(Job(lambda: machines.measure(device, dtype), done))
            self._machine = done.result()
        return self._machine

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token by itself, special tokens by their names, for people to look at."""
        return [self._tokenizer.decode([token_id]) for token_id in token_ids]

    def close(self) -> None:
        """End all runs with EngineClosed and free the worker; closing twice changes nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _body_weights(model: Any) -> int:
    """All weights but the embeddings of input and output, which may be one matrix."""
    tables = {id(table.weight): table.weight.numel()
              for table in (model.get_input_embeddings(), model.get_output_embeddings())}
    return int(sum(weight.numel() for weight in model.parameters()) - sum(tables.values()))
