"""Random schedules on a tiny model: whatever comes, leaves, waits or is thrown out, each answer is the one alone.

The machine drives the worker of a real engine step by step from this thread; the worker's own thread sleeps on its
empty inbox. After every step the invariants are proven, and at random moments every block that nobody may read is NaN.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kev_engine.attention import dense, segment
from kev_engine.cache.blocks import BlockPool
from kev_engine.config import EngineConfig
from kev_engine.isolation import mask
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, Refused, RunFinished
from kev_engine.runtime.run import ActiveRun
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.schema import Answer, Question, SamplingParams, SharedContext
from tests.models.tiny import tiny_adapter, tiny_folder

SOAK = bool(os.environ.get("KEV_SOAK"))
# Ten thousand in a soak, in parts, so that it can be seen how far it is.
PARTS, SCHEDULES = (10, 1000) if SOAK else (1, 40)
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

LONGEST, MOST_SAMPLES = 9, 3


def plain(random: Random) -> Question:
    prompt = (*random.choice(BEGINNINGS)[: random.choice([0, 3, 4, 8, 12])],
              *random.choice([(40,), (41, 42), (43,) * 5]))
    return Question(
        "?", prompt_token_ids=prompt, adapter=random.choice(NAMES), max_new_tokens=random.choice([1, 2, 5, LONGEST]),
        ignore_eos=True, prompt_logprobs=random.choice([False, False, True]), n=random.choice([1, 1, 1, MOST_SAMPLES]),
        priority=random.randint(0, 2), draft=random.choice([0, 0, 3]),
        sampling=random.choice([SamplingParams(temperature=0), SamplingParams(temperature=0.9, seed=3)]),
    )


def reading(random: Random) -> Question:
    return Question(
        "?", random.choice(["Who?", "And the dog?"]), shared=random.choice(SHARED).name, adapter=random.choice(NAMES),
        max_new_tokens=random.choice([1, 5]), n=random.choice([1, 1, 2]), priority=random.randint(0, 2),
        sampling=SamplingParams(temperature=0),
    )


# Drawn once, so that a schedule draws a question as one number; two of three carry their own prompt.
QUESTIONS = [make(Random(seed)) for seed in range(1000) for make in (plain, plain if seed % 3 else reading)]
questions = st.integers(0, len(QUESTIONS) - 1).map(lambda number: QUESTIONS[number])


class World:
    """An engine for each setup, the reference, the contents that adapter names may have, and known answers."""

    def __init__(self, folder: Path) -> None:
        self.model = str(tiny_folder(folder / "model", num_hidden_layers=1))
        paths = [str(tiny_adapter(folder / f"adapter{seed}", seed, num_hidden_layers=1)) for seed in range(3)]
        self.reference = Engine(EngineConfig(
            model=self.model, kv_budget_bytes=1 << 20, prefix_cache_bytes=0,
            adapters={str(index): path for index, path in enumerate(paths)},
        ))
        self.contents = [self.reference.adapters.resolve(str(index)).weights for index in range(3)]
        self.idle: dict[int, Engine] = {}
        self.all = [self.reference]
        self.known: dict[tuple[Question, int | None], tuple[Answer, ...]] = {}

    def take(self, setup: int) -> Engine:
        """An engine of this setup that nothing is left in; `idle` has it again when its schedule went well."""
        if setup not in self.idle:
            block_bytes = self.reference.info.bytes_per_token * BLOCK
            self.all.append(Engine(EngineConfig(
                model=self.model, block_size=BLOCK, kv_budget_bytes=BLOCKS * block_bytes, **SETUPS[setup],
            ), check=True))
            return self.all[-1]
        return self.idle.pop(setup)

    def alone(self, question: Question, content: int | None) -> tuple[Answer, ...]:
        """The answer of each sample when nobody else is there and nothing is shared, kept or guessed.

        As long as any question asks for, and scored: a shorter answer is its beginning.
        """
        key = replace(question, id="?", priority=0, draft=0, max_new_tokens=LONGEST, n=MOST_SAMPLES,
                      prompt_logprobs=question.shared is None), content
        if key not in self.known:
            adapter = None if content is None else str(content)
            self.known[key] = self.reference.ask([replace(key[0], adapter=adapter)], SHARED).answers
        return self.known[key]

    def close(self) -> None:
        for engine in self.all:
            engine.close()


class Schedules(RuleBasedStateMachine):
    world: World

    @initialize(setup=st.sampled_from(range(len(SETUPS))))
    def begin(self, setup: int) -> None:
        self.setup = setup
        self.engine = self.world.take(setup)
        self.worker = self.engine._worker
        self.scheduler = self.worker.scheduler
        self.runs: list[tuple[ActiveRun, dict[str, tuple[Question, int | None]], set[str]]] = []
        self.names = {"x": 0, "y": 1}
        for name, content in self.names.items():
            self.engine.adapters.add(name, self.world.contents[content])
        if self.scheduler.cache is not None:
            self.scheduler.cache.forget(np.arange(self.engine._pool.num_blocks))
        self.damage()

    def damage(self) -> None:
        """Called when a schedule begins; see the mutations."""

    def mend(self) -> None:
        """Called before answers are compared with those alone."""

    @rule(asked=st.lists(questions, min_size=1, max_size=4))
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
        self.engine.adapters.add(name, self.world.contents[content])
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
        self.mend()
        for run, expected, cancelled in self.runs:
            self.compare(run, expected, cancelled)
        self.world.idle[self.setup] = self.engine

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
            whole = right.token_ids[: question.max_new_tokens]
            if answer.finish_reason == "cancelled":
                assert answer.question_id in cancelled
                assert answer.token_ids == whole[: len(answer.token_ids)]
            else:
                assert answer.token_ids == whole, (question, content)
                perplexity = right.prompt_perplexity if question.prompt_logprobs else None
                assert (answer.prompt_perplexity or 0) == pytest.approx(perplexity or 0, rel=1e-4)
                assert 0 <= answer.cached_tokens < answer.prompt_tokens


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


def run_schedules(machine: type[Schedules], count: int, *phases: Phase) -> None:
    run_state_machine_as_test(machine, settings=settings(
        max_examples=count, stateful_step_count=16, deadline=None, derandomize=not SOAK, database=None,
        report_multiple_bugs=False, phases=phases, suppress_health_check=list(HealthCheck),
    ))


@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_schedule_gives_the_answers_of_the_questions_alone(world, part):
    machine = type("Machine", (Schedules,), {"world": world})
    run_schedules(machine, SCHEDULES, Phase.generate, Phase.shrink)


def leak_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release
    monkeypatch.setattr(BlockPool, "release", lambda pool, blocks: release(pool, blocks[: max(len(blocks) - 1, 1)]))


def forget_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sample or a reader inherits in an unfull block never arrives in its own."""
    plan = Scheduler._plan
    monkeypatch.setattr(Scheduler, "_plan", lambda scheduler, taking, copies: plan(scheduler, taking, ()))


def read_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    rule_ = mask.visible

    def wrong(related, query_position, key_position, window=None):
        return rule_(related, query_position + 1, key_position, window)

    for module in (mask, segment):
        monkeypatch.setattr(module, "visible", wrong)


def read_a_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query reads the first key of the step as well, whoever it belongs to."""
    right = dense.dense_step

    def leaky(plan, window=None):
        allowed = right(plan, window).copy()
        allowed[:, 0] = True
        return allowed

    monkeypatch.setattr(dense, "dense_step", leaky)


@pytest.mark.parametrize("mutation", [leak_a_block, forget_to_copy, read_the_future, read_a_neighbour])
def test_a_mutation_is_noticed(world, mutation):
    """Something is broken while a schedule runs, but not while an engine is loaded and audited, or asked alone."""

    class Broken(Schedules):
        def __init__(self) -> None:
            super().__init__()
            self.patch = pytest.MonkeyPatch()

        def damage(self) -> None:
            mutation(self.patch)

        def mend(self) -> None:
            self.patch.undo()

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                self.mend()

    Broken.world = world
    with pytest.raises(AssertionError):
        run_schedules(Broken, 60, Phase.generate)
