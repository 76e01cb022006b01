"""What is measured of a run agrees with what was executed, and with itself."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import OTHERS, RESERVED, Finished, PlanMade, RunFinished, Step
from kev_engine.schema import Question, Run, SharedContext
from tests.models.tiny import tiny_folder

BYTES_PER_TOKEN, BLOCK = 2 * 2 * 2 * 8 * 4, 16
PROMPT, NEW = 40, 8


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Memory for two of `questions` at a time, and chunks of 16 tokens."""
    folder = tiny_folder(tmp_path_factory.mktemp("llama"))
    config = EngineConfig(model=str(folder), kv_budget_bytes=8 * BLOCK * BYTES_PER_TOKEN, prefill_chunk=16)
    with Engine(config, check=True) as engine:
        yield engine


def questions(count: int) -> list[Question]:
    return [
        Question(f"q{index}", prompt_token_ids=tuple(range(5 + index, 5 + index + PROMPT)), ignore_eos=True,
                 max_new_tokens=NEW + 3 * (index % 2))
        for index in range(count)
    ]


def watched(engine: Engine, asked, shared=()) -> tuple[PlanMade, list[Step], Run]:
    plan, *events = engine.stream(asked, shared)
    stats = events[-1]
    assert isinstance(stats, RunFinished)
    answers = tuple(event.answer for event in events if isinstance(event, Finished))
    return plan, [event for event in events if isinstance(event, Step)], Run(answers, stats.stats)


def test_times_come_in_order_and_those_who_wait_wait_longer(engine):
    started = time.perf_counter()
    _, steps, run = watched(engine, questions(4))
    whole_ms, seconds = (time.perf_counter() - started) * 1e3, run.stats.seconds
    for answer in run.answers:
        assert 0 <= answer.queue_ms <= answer.ttft_ms <= answer.first_text_ms <= whole_ms
        assert answer.ttft_ms + answer.tpot_ms * (answer.output_tokens - 1) <= whole_ms
        assert answer.tokens_per_second == pytest.approx(1000 / answer.tpot_ms)
        assert answer.to_json()["queue_ms"] == answer.queue_ms
    first, _, third, _ = sorted(run.answers, key=lambda answer: answer.question_id)
    assert third.queue_ms > first.ttft_ms, "it waits until the first is done"
    assert run.tokens_per_second == pytest.approx((4 * NEW + 2 * 3) / seconds)
    phases = run.stats.plan_ms + run.stats.forward_ms + run.stats.sample_ms + run.stats.text_ms
    assert 0 < phases <= seconds * 1e3
    for phase in ("plan_ms", "forward_ms", "sample_ms"):
        assert getattr(run.stats, phase) == pytest.approx(sum(getattr(step, phase) for step in steps))


def test_the_composition_of_each_step_is_that_of_its_plan(engine):
    _, steps, run = watched(engine, questions(4))
    assert run.stats.tokens_per_forward == tuple(step.plan.num_tokens for step in steps)
    assert run.stats.sequences_per_forward == tuple(step.plan.num_sequences for step in steps)
    for step in steps:
        batch = step.batch
        assert batch.num_decoding + batch.prompt_tokens == step.plan.num_tokens, "nobody drafts here"
        assert batch.num_decoding + batch.num_prompts == step.plan.num_sequences == len(step.segments)
    assert steps[0].batch.num_waiting == 2
    assert steps[-1].batch.num_waiting == 0
    assert any(step.batch.num_decoding and step.batch.num_prompts for step in steps), "both in one forward"


def test_bytes_belong_to_the_segment_whose_tokens_they_hold(engine):
    shared = [SharedContext("fox", "The quick brown fox. " * 2)]
    asked = [Question(f"r{index}", "Who?", shared="fox", max_new_tokens=3, ignore_eos=True) for index in range(2)]
    plan, steps, run = watched(engine, asked, shared)
    block_bytes = BLOCK * BYTES_PER_TOKEN
    for step in steps:
        kv = step.kv
        assert len(kv.bytes_by_segment) == len(plan.segments)
        assert sum(kv.bytes_by_segment) + kv.bytes_others == kv.bytes_used <= kv.bytes_reserved <= kv.bytes_budget
        for index, held in enumerate(kv.bytes_by_segment):
            assert held == (kv.block_owner == index).sum() * block_bytes
        assert set(kv.block_owner[kv.block_owner < 0].tolist()) <= {-1, OTHERS, RESERVED}
    assert run.stats.kv_bytes_peak == max(sum(step.kv.bytes_by_segment) for step in steps) == steps[-1].kv.bytes_peak
    assert all(later.kv.bytes_peak >= earlier.kv.bytes_peak for earlier, later in pairwise(steps))
    assert max(step.kv.block_refs.max() for step in steps) == 3, "its full blocks stand in its table and both readers'"


def test_hits_are_those_of_the_answers(engine):
    asked = questions(1)
    engine.ask(asked)
    again = engine.ask([*asked, Question("new", prompt_token_ids=tuple(range(99, 119)), max_new_tokens=2)])
    assert [answer.cached_tokens for answer in again.answers] == [PROMPT // BLOCK * BLOCK, 0]
    assert again.stats.prefix_hits == 1
    assert again.stats.cached_tokens == sum(answer.cached_tokens for answer in again.answers)
