"""Far more questions than memory holds: all answered, in order, in flat memory."""

from __future__ import annotations

import os

import pytest

from kev_engine.config import POLICIES, EngineConfig
from kev_engine.errors import EngineBusy
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, RunFinished
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder

AT_A_TIME, COUNT = 8, 500
PROMPT, NEW = 20, 6
BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tiny_folder(tmp_path_factory.mktemp("llama")))


def question(index: int) -> Question:
    """A prompt of its own for each index; every one takes two blocks."""
    ids = tuple(3 + (index * 7 + place * (1 + index % 13)) % 300 for place in range(PROMPT))
    return Question(f"q{index}", prompt_token_ids=ids, max_new_tokens=NEW, ignore_eos=True)


def started(folder: str, at_a_time: int, **settings) -> Engine:
    bytes_per_token = 2 * 2 * 2 * 8 * 4
    return Engine(EngineConfig(
        model=folder, kv_budget_bytes=at_a_time * 2 * BLOCK * bytes_per_token, max_questions=COUNT, **settings))


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("policy", POLICIES if os.environ.get("KEV_SOAK") else POLICIES[:1])
def test_five_hundred_questions_through_memory_for_eight(folder, policy, record_property):
    asked = [question(index) for index in range(COUNT)]
    with started(folder, AT_A_TIME, policy=policy) as engine:
        right = {index: engine.ask([asked[index]]).answers[0].token_ids for index in range(0, COUNT, 25)}
        answers, resident, stats = [], [], None
        for event in engine.stream(asked):
            if isinstance(event, Finished):
                answers.append(event.answer)
                resident.append(resident_bytes())
            elif isinstance(event, RunFinished):
                stats = event.stats
        assert engine._pool.num_used == 0
    assert [answer.question_id for answer in answers] == [item.id for item in asked]
    assert max(stats.sequences_per_forward) == AT_A_TIME
    assert stats.kv_bytes_peak <= stats.kv_bytes_budget
    for index, token_ids in right.items():
        assert answers[index].token_ids == token_ids
    growth = max(resident[COUNT // 2 :]) - max(resident[: COUNT // 5])
    record_property("peak_rss_bytes", max(resident))
    assert growth < 16 << 20, f"{growth >> 20} MiB more after half of the questions than after a fifth"


def test_a_full_queue_refuses_with_numbers_and_changes_nothing(folder):
    with started(folder, 2, max_waiting=10) as engine:
        first = engine.stream([question(index) for index in range(10)])
        for event in first:
            if isinstance(event, Finished):
                break
        waiting = engine._worker.num_waiting
        with pytest.raises(EngineBusy, match=r"of 10 questions and KV memory [0-9,]+ of [0-9,]+ bytes") as busy:
            engine.ask([question(index) for index in range(11)])
        assert 0 <= busy.value.waiting <= waiting
        rest = [event for event in first if isinstance(event, Finished)]
        assert len(rest) == 9
        assert len(engine.ask([question(99)]).answers) == 1
