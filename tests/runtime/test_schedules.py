"""Random schedules on a tiny model: whatever comes, leaves, waits or is thrown out, each answer is the one alone.

The machine drives the worker of a real engine step by step from this thread; the worker's own thread sleeps on its
empty inbox. After every step the invariants are proven, and at random moments every block that nobody may read is NaN.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, Refused, RunFinished
from kev_engine.runtime.run import ActiveRun
from kev_engine.schema import Answer, Question, SamplingParams, SharedContext
from tests.models.tiny import tiny_adapter, tiny_folder

SOAK = bool(os.environ.get("KEV_SOAK"))
SCHEDULES = 10_000 if SOAK else 40
BLOCK, BLOCKS = 4, 14
SHARED = (SharedContext("fox", "The quick brown fox."), SharedContext("dog", "The other dog answers the lazy fox."))
BEGINNINGS = ((5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), (5, 6, 7, 8, 30, 31, 32, 33))
NAMES = (None, "x", "y")
SETUPS = (
    {"policy": "fifo", "token_budget": 48, "prefill_chunk": 5, "adapter_pool_size": 2},
    {"policy": "priority", "token_budget": 24, "prefill_chunk": 24, "adapter_pool_size": 1},
    {"policy": "shortest-first", "token_budget": 16, "prefill_chunk": 3, "adapter_pool_size": 2, "backend": "dense"},
    {"policy": "priority", "token_budget": 64, "prefill_chunk": 8, "adapter_pool_size": 2, "prefix_cache_bytes": 0},
)

prompts = st.builds(
    lambda start, count, own: (*start[:count], *own),
    st.sampled_from(BEGINNINGS), st.sampled_from([0, 3, 4, 8, 12]), st.sampled_from([(40,), (41, 42), (43,) * 5]),
)
plain = st.builds(
    lambda prompt, **fields: Question("?", prompt_token_ids=prompt, **fields),
    prompts, adapter=st.sampled_from(NAMES), max_new_tokens=st.sampled_from([1, 3, 9, 14]),
    ignore_eos=st.just(True), prompt_logprobs=st.sampled_from([False, False, True]),
    n=st.sampled_from([1, 1, 1, 3]), priority=st.integers(0, 2), draft=st.sampled_from([0, 0, 3]),
    sampling=st.sampled_from([SamplingParams(temperature=0), SamplingParams(temperature=0.9, seed=3)]),
)
reading = st.builds(
    lambda shared, text, **fields: Question("?", text, shared=shared, **fields),
    st.sampled_from([context.name for context in SHARED]), st.sampled_from(["Who?", "And the dog?"]),
    adapter=st.sampled_from(NAMES), max_new_tokens=st.sampled_from([1, 5]), n=st.sampled_from([1, 1, 2]),
    priority=st.integers(0, 2), sampling=st.just(SamplingParams(temperature=0)),
)


class World:
    """One engine for each setup, the reference, the two contents that adapter names may have, and known answers."""

    def __init__(self, folder: Path) -> None:
        model = str(tiny_folder(folder / "model"))
        self.contents = [str(tiny_adapter(folder / f"adapter{seed}", seed)) for seed in range(3)]
        self.reference = Engine(EngineConfig(
            model=model, kv_budget_bytes=1 << 20, prefix_cache_bytes=0,
            adapters={str(index): path for index, path in enumerate(self.contents)},
        ))
        block_bytes = self.reference.info.bytes_per_token * BLOCK
        self.engines = [
            Engine(EngineConfig(
                model=model, block_size=BLOCK, kv_budget_bytes=BLOCKS * block_bytes, adapters={"x": self.contents[0]},
                **setup,
            ), check=True)
            for setup in SETUPS
        ]
        self.known: dict[tuple[Question, int | None], tuple[Answer, ...]] = {}

    def alone(self, question: Question, content: int | None) -> tuple[Answer, ...]:
        """The answer of each sample when nobody else is there and nothing is shared, kept or guessed."""
        key = replace(question, id="?", priority=0, draft=0), content
        if key not in self.known:
            adapter = None if content is None else str(content)
            self.known[key] = self.reference.ask([replace(key[0], adapter=adapter)], SHARED).answers
        return self.known[key]

    def close(self) -> None:
        for engine in (self.reference, *self.engines):
            engine.close()


class Schedules(RuleBasedStateMachine):
    world: World

    @initialize(setup=st.sampled_from(range(len(SETUPS))))
    def begin(self, setup: int) -> None:
        self.engine = self.world.engines[setup]
        self.worker = self.engine._worker
        self.scheduler = self.worker.scheduler
        self.runs: list[tuple[ActiveRun, dict[str, tuple[Question, int | None]], set[str]]] = []
        self.names = {"x": 0, "y": 1}
        for name, content in self.names.items():
            self.engine.adapters.load(name, self.world.contents[content])
        if self.scheduler.cache is not None:
            self.scheduler.cache.forget(np.arange(self.engine._pool.num_blocks))

    @rule(asked=st.lists(st.one_of(plain, plain, reading), min_size=1, max_size=4))
    def submit(self, asked: list[Question]) -> None:
        """A run of these questions, each expecting the adapter that its name means now."""
        questions = [replace(question, id=f"q{index}") for index, question in enumerate(asked)]
        taken = self.engine._take(questions, SHARED)
        assert not taken.refused
        run = self.engine._run(taken)
        self.worker._begin(run)
        expected = {question.id: (question, self.names.get(question.adapter)) for question in questions}
        self.runs.append((run, expected, set()))

    @precondition(lambda self: self.worker._runs)
    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.worker._runs:
                self.worker._step()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run, expected, cancelled = data.draw(st.sampled_from(self.runs))
        question_id = data.draw(st.sampled_from(sorted(expected)))
        cancelled.add(question_id)
        self.worker._cancel(run, question_id)

    @rule(name=st.sampled_from(["x", "y"]), content=st.integers(0, 2))
    def reload(self, name: str, content: int) -> None:
        self.engine.adapters.load(name, self.world.contents[content])
        self.names[name] = content

    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """Any running sequence gives way, unless somebody that runs still has to start from it."""
        needed = {sequence.parent for sequence in self.scheduler.running if sequence.inherits}
        victims = [sequence for sequence in self.scheduler.running if sequence not in needed]
        if victims:
            self.scheduler._preempt(data.draw(st.sampled_from(victims)))

    @rule(whole=st.booleans())
    def poison(self, whole: bool) -> None:
        """NaN in every slot that holds nothing readable; with `whole`, the prefix cache is emptied before."""
        pool, cache = self.engine._pool, self.scheduler.cache
        if whole and cache is not None:
            cache.forget(np.flatnonzero(pool.refs == 0))
        stored = np.zeros((pool.num_blocks, BLOCK), dtype=bool)
        stored[0] = True
        stored[(pool.recency > 0) & (pool.refs == 0)] = True
        for sequence in self.scheduler.running:
            if not sequence.inherits:
                positions = np.arange(sequence.num_computed)
                stored[sequence.block_table[positions // BLOCK], positions % BLOCK] = True
        self.worker.storage.fill_slots(torch.from_numpy(np.flatnonzero(~stored)), float("nan"))

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.check()
            self.engine.adapters.check()

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(2000):
            if not self.worker._runs:
                break
            self.worker._step()
        assert not self.worker._runs, "the runs do not end"
        assert self.scheduler.is_idle
        assert self.engine._pool.num_used == 0, "blocks leak"
        assert all(adapter.holds == 0 for adapter in self.engine.adapters.list())
        for run, expected, cancelled in self.runs:
            self.compare(run, expected, cancelled)

    def compare(
        self, run: ActiveRun, expected: dict[str, tuple[Question, int | None]], cancelled: set[str]
    ) -> None:
        events = []
        while not run.events.empty():
            events.append(run.events.get())
        assert isinstance(events[-1], RunFinished), events[-1]
        assert events[-1].stats.blocks_leaked == 0
        assert not [event for event in events if isinstance(event, Refused)]
        answers = [event.answer for event in events if isinstance(event, Finished)]
        assert len(answers) == sum(question.n for question, _ in expected.values())
        for answer in answers:
            question, content = expected[answer.question_id]
            right = self.world.alone(question, content)[answer.sample]
            if answer.finish_reason == "cancelled":
                assert answer.question_id in cancelled
                assert answer.token_ids == right.token_ids[: len(answer.token_ids)]
            else:
                assert answer.token_ids == right.token_ids, (question, content)
                assert (answer.prompt_perplexity or 0) == pytest.approx(right.prompt_perplexity or 0, rel=1e-4)
                assert 0 <= answer.cached_tokens < answer.prompt_tokens


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.mark.timeout(7200 if SOAK else 300)
def test_every_schedule_gives_the_answers_of_the_questions_alone(world):
    machine = type("Machine", (Schedules,), {"world": world})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=SCHEDULES, stateful_step_count=20, deadline=None, derandomize=not SOAK,
        suppress_health_check=list(HealthCheck),
    ))
