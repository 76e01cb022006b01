"""The prefix cache in the engine: hits change the work and never the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Step
from kev_engine.runtime.identity import identity
from kev_engine.schema import Answer, Question, SharedContext
from tests.models.tiny import tiny_adapter, tiny_folder

LONG = "The quick brown fox jumps over the lazy dog and the other dog answers. "
BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def adapters(tmp_path_factory) -> dict[str, str]:
    return {name: str(tiny_adapter(tmp_path_factory.mktemp(name), seed)) for seed, name in enumerate("ab")}


def started(folder: Path, **settings) -> Engine:
    return Engine(EngineConfig(**{"model": str(folder), "kv_budget_bytes": 1 << 20} | settings), check=True)


@pytest.fixture(scope="module")
def cold(folder, adapters):
    """The reference: an engine that keeps nothing."""
    with started(folder, adapters=adapters, prefix_cache_bytes=0) as engine:
        yield engine


@pytest.fixture(scope="module")
def one_engine(folder, adapters):
    with started(folder, adapters=adapters) as engine:
        yield engine


@pytest.fixture
def engine(one_engine):
    """With an empty cache."""
    one_engine._worker.scheduler.cache.forget(np.arange(one_engine._pool.num_blocks))
    return one_engine


def ids(count: int, first: int = 5) -> Question:
    return Question("ids", prompt_token_ids=tuple(range(first, first + count)), max_new_tokens=6, ignore_eos=True)


def one(engine: Engine, question: Question) -> Answer:
    return engine.ask([question]).answers[0]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 64])
def test_a_repeated_prompt_is_found_but_for_its_last_token(engine, cold, length):
    first, second = one(engine, ids(length)), engine.ask([ids(length)])
    again = second.answers[0]
    assert first.cached_tokens == 0
    assert again.cached_tokens == (length - 1) // BLOCK * BLOCK
    assert second.stats.tokens_per_forward[0] == length - again.cached_tokens >= 1
    assert second.stats.cached_tokens == again.cached_tokens
    assert second.stats.prefix_hits == (again.cached_tokens > 0)
    assert again.token_ids == first.token_ids == one(cold, ids(length)).token_ids
    assert second.stats.blocks_leaked == 0


def test_an_answer_is_found_when_the_talk_goes_on(engine, cold):
    first = one(engine, replace(ids(20), max_new_tokens=30))
    talk = (*range(5, 25), *first.token_ids, 7, 8)
    further = Question("more", prompt_token_ids=talk, max_new_tokens=6)
    answer = one(engine, further)
    assert answer.cached_tokens == 48, "of 49 tokens that were computed; the last one drawn never was"
    assert answer.token_ids == one(cold, further).token_ids


def test_another_adapter_or_none_never_hits(engine, cold):
    asked = [replace(ids(40), adapter=name) for name in ("a", "b", None)]
    answers = [one(engine, question) for question in asked]
    assert [answer.cached_tokens for answer in answers] == [0, 0, 0]
    assert len({answer.token_ids for answer in answers}) == 3
    again = [one(engine, question) for question in asked]
    assert [answer.cached_tokens for answer in again] == [32, 32, 32]
    assert [answer.token_ids for answer in again] == [one(cold, question).token_ids for question in asked]


def test_an_adapter_reloaded_under_its_name_misses_until_its_content_is_back(engine, adapters):
    question = replace(ids(40), adapter="a")
    right = one(engine, question)
    engine.adapters.load("a", adapters["b"])
    other = one(engine, question)
    assert other.cached_tokens == 0
    assert other.token_ids != right.token_ids
    engine.adapters.load("a", adapters["a"])
    back = one(engine, question)
    assert (back.cached_tokens, back.token_ids) == (32, right.token_ids)


def test_a_shared_context_is_found_by_the_next_run_and_shown_with_each_reader(engine, cold):
    shared = [SharedContext("text", LONG * 2)]
    asked = [
        Question(f"q{index}", f"What of {index}?", shared="text", adapter=adapter, max_new_tokens=5, n=1 + index % 2)
        for index, adapter in enumerate((None, "a", None, "a"))
    ]
    first, second = engine.ask(asked, shared), engine.ask(asked, shared)
    right = [answer.token_ids for answer in cold.ask(asked, shared).answers]
    assert [answer.token_ids for answer in first.answers] == right
    assert [answer.token_ids for answer in second.answers] == right
    assert all(answer.cached_tokens == 0 for answer in first.answers)
    assert all(answer.cached_tokens >= 2 * BLOCK for answer in second.answers)
    assert second.stats.prefix_hits == 2, "one for each context: the base's and the adapter's"
    assert second.stats.blocks_leaked == 0


def test_the_samples_of_a_question_find_their_prompt(engine, cold):
    question = replace(ids(40), n=3)
    first, second = engine.ask([question]).answers, engine.ask([question]).answers
    assert [answer.cached_tokens for answer in first + second] == [0, 0, 0, 32, 32, 32]
    assert {answer.token_ids for answer in first + second} == {one(cold, ids(40)).token_ids}


def test_questions_that_run_find_what_others_of_now_computed(engine):
    long = replace(ids(40), id="long", max_new_tokens=200)
    stream = engine.stream([long])
    for event in stream:
        if isinstance(event, Step):
            break
    late = one(engine, ids(40))
    assert late.cached_tokens == 32
    stream.close()


def test_steps_say_what_was_found(engine):
    engine.ask([ids(40)])
    steps = [event for event in engine.stream([ids(40), replace(ids(40, 100), id="new")]) if isinstance(event, Step)]
    assert {step.cached for step in steps} == {(32, 0)}
    assert steps[0].plan.chunks[0].start == 32
    assert steps[0].batch.prompt_tokens == 8 + 40
    assert steps[0].kv.bytes_used == 6 * engine.info.block_size * engine.info.bytes_per_token
    assert steps[0].kv.bytes_by_segment[0] == steps[0].kv.bytes_by_segment[1], "found blocks count for their reader"
    assert steps[-1].kv.bytes_kept >= 0


def test_memory_that_is_wanted_is_taken_from_the_cache(folder, cold):
    """Twelve stories through a pool of five: each is answered as if cold, and nothing is ever short."""
    block_bytes = cold.info.bytes_per_token * BLOCK
    with started(folder, kv_budget_bytes=20 * block_bytes, prefix_cache_bytes=20 * block_bytes) as engine:
        cached = []
        for number in (*range(12), 11, 0):
            question = ids(50, first=number)
            answer = one(engine, question)
            assert answer.token_ids == one(cold, question).token_ids
            assert engine._pool.num_used == 0
            cached.append(answer.cached_tokens)
        assert cached == [0] * 12 + [48, 0]
        whole = replace(ids(280), max_new_tokens=20)
        assert one(engine, whole).token_ids == one(cold, whole).token_ids
        assert engine._pool.num_kept <= 20


def test_a_limit_in_bytes_is_kept(folder, cold):
    block_bytes = cold.info.bytes_per_token * BLOCK
    with started(folder, prefix_cache_bytes=3 * block_bytes + 1) as engine:
        for number in range(5):
            engine.ask([ids(60, first=number)])
        assert engine._pool.num_kept == 3


def test_nothing_is_kept_where_it_is_switched_off(folder):
    with started(folder, prefix_cache_bytes=0) as engine:
        assert [one(engine, ids(40)).cached_tokens for _ in range(2)] == [0, 0]
        assert engine._pool.num_kept == 0


def poison(engine: Engine, everything: bool) -> None:
    """NaN in all free blocks, those that were kept included or not."""
    pool = engine._pool
    free = (pool.refs == 0) & (everything | (pool.recency == 0))
    engine._worker.storage.fill(free.nonzero()[0].tolist(), float("nan"))


def test_a_hit_reads_only_blocks_that_were_kept(engine, cold):
    engine.ask([ids(40)])
    poison(engine, everything=False)
    assert one(engine, ids(40)).token_ids == one(cold, ids(40)).token_ids


def test_the_audit_neither_reads_nor_fills_the_cache(engine):
    engine.ask([ids(40)])
    kept = engine._pool.num_kept
    poison(engine, everything=True)
    assert engine.audit([ids(40), replace(ids(40, 100), id="other")]).isolated
    assert engine._pool.num_kept == kept
    assert one(engine, ids(40)).finish_reason == "error", "the poison was real: who does read the cache draws nothing"
    assert one(engine, ids(40)).finish_reason == "length", "and what it computed from it is not kept"


class _Sick:
    """A backend that gives NaN."""

    def __init__(self, inner):
        self.inner, self.name, self.capabilities = inner, inner.name, inner.capabilities

    def unsupported(self, needs, device, dtype):
        return None

    def prepare(self, plan, storage, windows):
        return self.inner.prepare(plan, storage, windows)

    def lone_rows(self, state, window):
        return None

    def attend(self, layer, query, storage, state):
        return torch.full_like(self.inner.attend(layer, query, storage, state), float("nan"))


def test_what_a_question_computed_that_could_not_be_drawn_from_is_not_kept(engine, cold):
    worker = engine._worker
    healthy = worker.runner
    worker.runner = replace(healthy, backend=_Sick(healthy.backend))
    assert one(engine, ids(40)).finish_reason == "error"
    worker.runner = healthy
    well = one(engine, ids(40))
    assert well.cached_tokens == 0
    assert well.token_ids == one(cold, ids(40)).token_ids


def test_the_identity_holds_the_template_and_the_rotation(tmp_path):
    from kev_engine.models.load import load
    from kev_engine.models.sources import resolve

    loaded = load(resolve(str(tiny_folder(tmp_path)), tmp_path))
    before = identity(loaded, torch.float32)
    assert before == identity(loaded, torch.float32)
    assert identity(loaded, torch.bfloat16) != before
    loaded.tokenizer.chat_template = loaded.tokenizer.chat_template + " "
    assert identity(loaded, torch.float32) != before
    template = identity(loaded, torch.float32)
    loaded.model.config.rope_parameters = {**loaded.model.config.rope_parameters, "rope_theta": 5.0}
    assert identity(loaded, torch.float32) != template
