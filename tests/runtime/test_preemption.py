"""Preemption in the engine: who gave way answers as if nothing had happened."""

from __future__ import annotations

import pytest

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, RunFinished
from kev_engine.runtime.run import ActiveRun
from kev_engine.schema import Question, SamplingParams
from tests.models.tiny import tiny_folder

HOT = SamplingParams(temperature=1.3, seed=11, presence_penalty=0.5)
BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tiny_folder(tmp_path_factory.mktemp("llama")))


def started(folder: str, blocks: int, **settings) -> Engine:
    bytes_per_token = 2 * 2 * 2 * 8 * 4
    engine = Engine(EngineConfig(
        model=folder, kv_budget_bytes=blocks * BLOCK * bytes_per_token, policy="priority", **settings), check=True)
    assert engine.info.kv_bytes_budget == blocks * BLOCK * engine.info.bytes_per_token
    return engine


def asked(name: str, new: int, priority: int, **fields) -> Question:
    ids = tuple(range(5, 45))
    return Question(name, prompt_token_ids=ids, max_new_tokens=new, ignore_eos=True, priority=priority, **fields)


@pytest.mark.parametrize("cached", [0, None], ids=["computed again", "found in the cache"])
def test_an_urgent_question_takes_the_place_of_running_ones_whose_answers_stay_the_same(folder, cached):
    low = [asked("greedy", 60, 0), asked("hot", 60, 0, sampling=HOT, n=2)]
    urgent = asked("urgent", 40, 1)
    with started(folder, blocks=64, prefix_cache_bytes=0) as engine:
        right = {(answer.question_id, answer.sample): answer for answer in engine.ask([*low, urgent]).answers}
    with started(folder, blocks=20, prefix_cache_bytes=cached) as engine:
        runs = [engine._run(engine._take(questions, ())) for questions in (low, [urgent])]
        worker = engine._worker
        worker._begin(runs[0])
        for _ in range(10):
            worker._step()
        worker._begin(runs[1])
        while worker._runs:
            worker._step()
        events = [drained(run) for run in runs]
        preemptions = [run_events[-1].stats.preemptions for run_events in events]
        assert preemptions == [1, 0], "the last in rank alone"
        answers = [event.answer for event in [*events[0], *events[1]] if isinstance(event, Finished)]
        assert len(answers) == 4
        for answer in answers:
            assert answer.token_ids == right[answer.question_id, answer.sample].token_ids
            assert answer.text == right[answer.question_id, answer.sample].text
        assert engine._pool.num_used == 0


def drained(run: ActiveRun) -> list:
    """The events of a run that is over."""
    events = []
    while not run.events.empty():
        events.append(run.events.get())
    assert isinstance(events[-1], RunFinished)
    return events


def test_a_question_that_gave_way_can_be_cancelled_where_it_waits(folder):
    with started(folder, blocks=8) as engine:
        worker = engine._worker
        low = engine._run(engine._take([asked("low", 60, 0)], ()))
        urgent = engine._run(engine._take([asked("urgent", 20, 1)], ()))
        worker._begin(low)
        for _ in range(5):
            worker._step()
        worker._begin(urgent)
        worker._step()
        assert worker.scheduler.waiting == low.sequences
        worker._cancel(low, None)
        assert low.is_over
        assert worker.scheduler.waiting == []
        while worker._runs:
            worker._step()
        [answer] = [event.answer for event in drained(low) if isinstance(event, Finished)]
        assert (answer.finish_reason, len(answer.token_ids)) == ("cancelled", 5)
        assert engine._pool.num_used == 0
