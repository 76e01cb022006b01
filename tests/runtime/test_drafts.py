"""Drafts through the engine: answers are token for token those without, whatever is guessed, confirmed or rejected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, PlanMade, Step
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.speculative import Drafter
from kev_engine.runtime.worker import Worker
from kev_engine.schema import Answer, Question, Run, SamplingParams, SharedContext
from tests.models.tiny import tiny_folder

CONTEXT = "The quick brown fox jumps over the lazy dog, and then the other dog answers. "
Guess = Callable[[Drafter, Sequence[int], int], list[int]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory, "llama") as started:
        yield started


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with tiny_engine(tmp_path_factory, "gemma3") as started:
        yield started


@pytest.fixture(params=["llama", "gemma3"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """One model whose layers read the whole story, and one with windows."""
    found: Engine = request.getfixturevalue(request.param)
    return found


def tiny_engine(tmp_path_factory: pytest.TempPathFactory, family: str) -> Engine:
    folder = tiny_folder(tmp_path_factory.mktemp(family), family)
    return Engine(EngineConfig(model=str(folder), kv_budget_bytes=2 << 20), check=True)


def mixed(draft: int, new_tokens: int = 28) -> list[Question]:
    """One question of each kind that has something to roll back."""
    kinds: dict[str, dict[str, Any]] = {
        "greedy": {},
        "long": {"context": CONTEXT * 2},
        "hot": {"sampling": SamplingParams(temperature=0.8, seed=1)},
        "cut": {"sampling": SamplingParams(temperature=1.2, top_k=9, top_p=0.9, min_p=0.02, seed=2)},
        "repetition": {"sampling": SamplingParams(temperature=0.7, repetition_penalty=1.3, seed=3)},
        "frequency": {"sampling": SamplingParams(temperature=0.0, frequency_penalty=0.5, presence_penalty=0.3)},
        "choices": {"choices": ("the dog, the dog, the dog, the dog", "the fox, the fox, the fox, the fox")},
        "regex": {"regex": "(ab ){3,9}c", "sampling": SamplingParams(temperature=1.0, seed=4)},
        "open": {"regex": "[a-z]*", "sampling": SamplingParams(temperature=3.0, seed=6)},
        "stop": {"stop": ("the", "e"), "ignore_eos": True},
        "samples": {"n": 3, "sampling": SamplingParams(temperature=0.9, seed=5)},
        "scored": {"logprobs": True, "prompt_logprobs": True},
    }
    return [
        Question(name, f"Repeat: {CONTEXT}", max_new_tokens=new_tokens, draft=draft, **kind)
        for name, kind in kinds.items()
    ]


def essence(answer: Answer) -> tuple[object, ...]:
    return (answer.question_id, answer.sample, answer.token_ids, answer.text, answer.finish_reason, answer.matched_stop)


def essences(run: Run) -> list[tuple[object, ...]]:
    return [essence(answer) for answer in run.answers]


@pytest.mark.parametrize("draft", [2, 64])
def test_answers_are_those_without_drafts(engine: Engine, draft: int) -> None:
    plain, drafted = engine.ask(mixed(0)), engine.ask(mixed(draft))
    assert essences(drafted) == essences(plain)
    assert plain.stats.draft_proposed == 0
    assert 0 < drafted.stats.draft_accepted < drafted.stats.draft_proposed
    assert drafted.stats.draft_accepted == sum(answer.draft_accepted for answer in drafted.answers)
    assert drafted.stats.draft_proposed == sum(answer.draft_proposed for answer in drafted.answers)
    scored, right = drafted.answers[-1], plain.answers[-1]
    expected = [item.logprob for item in right.logprobs]
    assert [item.logprob for item in scored.logprobs] == pytest.approx(expected, abs=1e-4)
    assert scored.prompt_perplexity == pytest.approx(right.prompt_perplexity)


def test_an_answer_and_its_counts_do_not_depend_on_neighbours(llama: Engine) -> None:
    together = llama.ask(mixed(5)).answers
    for question in mixed(5)[::2]:
        for alone in llama.ask([question]).answers:
            [same] = [item for item in together if (item.question_id, item.sample) == (question.id, alone.sample)]
            assert essence(same) == essence(alone)
            assert (same.draft_proposed, same.draft_accepted) == (alone.draft_proposed, alone.draft_accepted)


def test_readers_of_a_shared_context_guess_from_it(llama: Engine) -> None:
    shared = [SharedContext("dogs", CONTEXT * 2)]
    asked = [Question(f"q{index}", f"Say {index}.", shared="dogs", max_new_tokens=30) for index in range(3)]
    plain = llama.ask(asked, shared)
    drafted = llama.ask([replace(question, draft=6) for question in asked], shared)
    assert essences(drafted) == essences(plain)
    assert drafted.stats.draft_proposed > 0


def test_a_small_budget_cuts_guesses_and_no_answer(llama: Engine, tmp_path: Path) -> None:
    """Prompts of 100 tokens in steps of 16, and as much KV memory as the longest of them needs."""
    plain = llama.ask(mixed(0, 12))
    model = llama.config.model
    with Engine(EngineConfig(model=model, kv_budget_bytes=128 << 10, token_budget=16), check=True) as tight:
        drafted = tight.ask(mixed(8, 12))
    assert essences(drafted) == essences(plain)
    assert max(drafted.stats.tokens_per_forward) <= 16
    assert drafted.stats.kv_bytes_peak <= drafted.stats.kv_bytes_budget
    assert drafted.stats.blocks_leaked == 0


def forced(plain: Run, num_right: int, wrong: int) -> Guess:
    """Guesses that go on as the plain answer does for `num_right` tokens and then name token `wrong` throughout."""

    def guess(drafter: Drafter, token_ids: Sequence[int], limit: int) -> list[int]:
        story, size = list(token_ids), drafter._max_guesses
        for answer in plain.answers:
            for taken in range(min(len(answer.token_ids), len(story)), 0, -1):
                start = answer.prompt_tokens
                if len(story) == start + taken and tuple(story[start:]) == answer.token_ids[:taken]:
                    right = list(answer.token_ids[taken : taken + num_right])
                    return (right + [wrong] * size)[: min(size, limit)]
        raise AssertionError("the answer is not on the way of any plain one")

    return guess


@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_forced_rejections_leave_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, num_right: int
) -> None:
    """Six guesses a step, the first few right: histories, grammars, stop strings and keys come back each time."""
    plain = engine.ask(mixed(0))
    wrong = 17
    monkeypatch.setattr(Drafter, "guess", forced(plain, num_right, wrong))
    drafted = engine.ask(mixed(6))
    assert essences(drafted) == essences(plain)
    assert drafted.stats.draft_proposed - drafted.stats.draft_accepted > 150
    [opened] = [answer for answer in drafted.answers if answer.question_id == "open"]
    assert opened.token_ids[-1] in engine._facts.stop_token_ids, "no stop token was ever guessed"


def test_steps_tell_which_guesses_were_dropped(llama: Engine) -> None:
    """What is kept of all steps is each story once, position by position."""
    events = list(llama.stream(mixed(5)))
    [plan] = [event for event in events if isinstance(event, PlanMade)]
    answers = {
        (event.answer.question_id, event.answer.sample): event.answer for event in events if isinstance(event, Finished)
    }
    ends: dict[int, int] = {}
    num_dropped = 0
    for step in (event for event in events if isinstance(event, Step)):
        num_dropped += sum(step.dropped)
        for segment, chunk in zip(step.segments, step.kept_chunks, strict=True):
            assert chunk.start == ends.get(segment, chunk.start)
            ends[segment] = chunk.num_keys
    for segment, info in enumerate(plan.segments):
        if not info.is_shared:
            answer = answers[info.name, info.sample]
            assert 0 <= answer.prompt_tokens + answer.output_tokens - ends[segment] <= 1, "the newest is not stored yet"
    proposed = sum(answer.draft_proposed for answer in answers.values())
    accepted = sum(answer.draft_accepted for answer in answers.values())
    assert num_dropped == proposed - accepted > 0


class PoisoningRunner(ModelRunner):
    """Fills with NaN, before every step, each slot of a running sequence that holds nothing it has kept."""

    worker: Worker

    def run(self, plan: Any, storage: Any, *rest: Any, **named: Any) -> torch.Tensor:
        size = storage.block_size
        for sequence in self.worker.scheduler.running:
            table = np.asarray(sequence.block_table, dtype=np.int64)
            at = np.arange(sequence.num_computed, len(table) * size)
            storage.fill_slots(torch.from_numpy(table[at // size] * size + at % size), float("nan"))
        return super().run(plan, storage, *rest, **named)


def test_what_rejected_guesses_stored_is_never_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [question for question in mixed(0) if question.n == 1]
    plain = engine.ask(asked)
    monkeypatch.setattr(Drafter, "guess", forced(plain, 2, 17))
    worker, usual = engine._worker, engine._worker.runner
    runner = PoisoningRunner(usual.model, usual.backend, usual.router, usual.windows, usual.device)
    object.__setattr__(runner, "worker", worker)
    worker.runner = runner
    try:
        drafted = engine.ask([replace(question, draft=6) for question in asked])
    finally:
        worker.runner = usual
    assert essences(drafted) == essences(plain)


def test_draws_behind_guesses_follow_the_models_distribution(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square over whole answers of four tokens against the product of the model's own conditionals; what is guessed
    is the likeliest answer, so confirmed and rejected guesses both matter."""
    prompt, top_k, length = (5, 6, 7, 8), 2, 4
    params = SamplingParams(temperature=2.0, top_k=top_k, seed=8)
    usual = llama.ask([
        Question("likely", prompt_token_ids=prompt, max_new_tokens=length, ignore_eos=True, logprobs=True)
    ]).answers[0]
    likely = list(usual.token_ids)

    def guess(drafter: Drafter, token_ids: Sequence[int], limit: int) -> list[int]:
        taken = len(token_ids) - len(prompt)
        return likely[taken : taken + limit]

    monkeypatch.setattr(Drafter, "guess", guess)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = proposed = 0
    for seed in range(4):
        run = llama.ask([Question(
            "drawn", prompt_token_ids=prompt, max_new_tokens=length, ignore_eos=True, n=250, draft=4,
            sampling=replace(params, seed=seed),
        )])
        counts.update(answer.token_ids for answer in run.answers)
        accepted, proposed = accepted + run.stats.draft_accepted, proposed + run.stats.draft_proposed
    assert 0.1 < accepted / proposed < 0.9
    expected = exact(llama, prompt, top_k, 2.0, length)
    assert counts.keys() <= expected.keys()
    draws = sum(counts.values())
    statistic = sum((counts[path] - draws * p) ** 2 / (draws * p) for path, p in expected.items())
    assert len(expected) == top_k**length
    assert statistic < 37.7, "15 degrees of freedom: p = 0.001"


def exact(engine: Engine, prompt: tuple[int, ...], top_k: int, temperature: float, length: int):
    """The probability of every answer, by asking for the log-probabilities of each beginning."""
    paths = {(): 1.0}
    for _ in range(length):
        asked = [
            Question(f"p{index}", prompt_token_ids=prompt + path, max_new_tokens=1, logprobs=True)
            for index, path in enumerate(paths)
        ]
        rows = engine.ask(asked).answers
        grown = {}
        for (path, p), row in zip(paths.items(), rows, strict=True):
            likeliest = row.alternatives[0][:top_k]
            weights = [math.exp(item.logprob / temperature) for item in likeliest]
            for item, weight in zip(likeliest, weights, strict=True):
                grown[(*path, item.token_id)] = p * weight / sum(weights)
        paths = grown
    return paths


@pytest.mark.model
def test_a_copied_text_takes_fewer_forwards(embedded_engine: Engine) -> None:
    """Real tokens: the embedded model repeats a line, with one neighbour that cannot guess; both as without drafts."""
    line = "alpha bravo charlie delta echo foxtrot golf hotel india juliet"
    asked = [
        Question("copy", f"Repeat this line exactly:\n{line}", context=f"{line}\n{line}\n{line}", max_new_tokens=20),
        Question("free", "Name a colour.", max_new_tokens=4),
    ]
    plain = embedded_engine.ask(asked)
    drafted = embedded_engine.ask([replace(question, draft=6) for question in asked])
    assert essences(drafted) == essences(plain)
    copy = drafted.answers[0]
    assert copy.draft_accepted > copy.output_tokens / 2
    assert len(plain.stats.tokens_per_forward) == copy.output_tokens
    assert len(drafted.stats.tokens_per_forward) < copy.output_tokens / 3
