"""Log-probabilities of drawn tokens and of prompts, against transformers' own logits of the same tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from kev_engine.__main__ import main
from kev_engine.config import EngineConfig
from kev_engine.runtime import model_runner
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, TextDelta
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.schema import Answer, Question, SamplingParams, SharedContext
from tests.models.tiny import FAMILIES, NEEDY_FAMILIES, tiny_folder

CONTEXT = "The quick brown fox jumps over the lazy dog, and then the other dog answers. "
BOUND = 2e-5
FIRST_TOKEN = 1
"""<|im_start|>, with which the template begins; nothing predicts it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("logprobs"))


def engine_of(folder: Path, **settings: Any) -> Engine:
    return Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20, **settings), check=True)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with engine_of(folder) as started:
        yield started


@pytest.fixture(scope="module")
def reference(folder: Path) -> Callable[[list[int]], torch.Tensor]:
    return reference_of(folder)


def reference_of(folder: Path) -> Callable[[list[int]], torch.Tensor]:
    """transformers' log-probabilities: row p is the distribution of token p + 1."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")

    @torch.inference_mode()
    def logprobs(token_ids: list[int]) -> torch.Tensor:
        return model(torch.tensor([token_ids])).logits[0].log_softmax(-1)

    return logprobs


def prompt_of(answer: Answer) -> list[int]:
    """The prompt's tokens but the first, as the answer names them."""
    return [item.token_id for item in answer.prompt_logprobs if item is not None]


def assert_prompt(answer: Answer, token_ids: list[int], expected: torch.Tensor) -> None:
    assert len(answer.prompt_logprobs) == len(token_ids) == answer.prompt_tokens
    assert answer.prompt_logprobs[0] is None
    assert prompt_of(answer) == token_ids[1:]
    right = expected[range(len(token_ids) - 1), token_ids[1:]]
    mine = torch.tensor([item.logprob for item in answer.prompt_logprobs if item is not None])
    assert torch.allclose(mine, right, atol=BOUND)
    assert answer.prompt_perplexity == pytest.approx(float((-right.mean()).exp()), rel=1e-4)


def assert_output(answer: Answer, token_ids: list[int], expected: torch.Tensor) -> None:
    assert len(answer.logprobs) == len(answer.alternatives) == answer.output_tokens > 0
    for index, (chosen, others) in enumerate(zip(answer.logprobs, answer.alternatives, strict=True)):
        row = expected[len(token_ids) - 1 + index]
        assert chosen.token_id == answer.token_ids[index]
        assert chosen.logprob == pytest.approx(float(row[chosen.token_id]), abs=BOUND)
        values, ids = row.topk(5)
        assert [item.token_id for item in others] == ids.tolist()
        assert [item.logprob for item in others] == pytest.approx(values.tolist(), abs=BOUND)


@pytest.mark.parametrize("family", [*FAMILIES, *NEEDY_FAMILIES])
def test_logprobs_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """Of every family, because some scale or cap the logits behind the head."""
    folder = tiny_folder(tmp_path, family)
    prompts = {"a": list(range(3, 40)), "b": [7], "c": [5, 9, 5, 9, 5]}
    asked = [
        Question(name, prompt_token_ids=tuple(ids), max_new_tokens=4, logprobs=True, prompt_logprobs=True)
        for name, ids in prompts.items()
    ]
    with engine_of(folder) as engine:
        answers = engine.ask(asked).answers
    expected_of = reference_of(folder)
    for answer in answers:
        ids = prompts[answer.question_id]
        expected = expected_of([*ids, *answer.token_ids])
        assert_output(answer, ids, expected)
        if len(ids) > 1:
            assert_prompt(answer, ids, expected)
    assert answers[1].prompt_logprobs == (None,)
    assert answers[1].prompt_perplexity is None


@pytest.mark.parametrize("token_budget", [4096, 16])
@pytest.mark.parametrize("head_rows", [256, 5])
def test_readers_of_one_context_and_samples_of_one_question_are_scored_whole(
    folder: Path, reference: Callable[[list[int]], torch.Tensor], monkeypatch: pytest.MonkeyPatch, token_budget: int,
    head_rows: int,
) -> None:
    """The prompt lies in up to three sequences, its rows in several chunks and several calls of the
    head. Asked twice, so that what a cache remembers is scored as well."""
    monkeypatch.setattr(model_runner, "HEAD_ROWS", head_rows)
    shared = [SharedContext("dogs", CONTEXT)]
    asked = [
        Question(f"q{index}", f"Who is number {index}?", shared="dogs", n=1 + index, max_new_tokens=3,
                 prompt_logprobs=index != 1, logprobs=index == 1)
        for index in range(3)
    ]
    whole = [replace(question, shared=None, context=CONTEXT, n=1) for question in asked]
    with engine_of(folder, token_budget=token_budget) as engine:
        plain = {answer.question_id: answer for answer in engine.ask(whole).answers}
        runs = [engine.ask(asked, shared).answers for _ in range(2)]
    for answer in (answer for answers in runs for answer in answers):
        if answer.question_id == "q1":
            assert answer.prompt_logprobs == ()
            assert answer.token_ids == plain["q1"].token_ids
            continue
        assert prompt_of(answer) == prompt_of(plain[answer.question_id])
        ids = [FIRST_TOKEN, *prompt_of(answer)]
        assert_prompt(answer, ids, reference(ids))


def test_what_is_not_asked_for_is_neither_computed_nor_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("a prompt was scored that nobody wanted scored")

    monkeypatch.setattr(ModelRunner, "run_scored", never)
    [answer] = engine.ask([Question("q", "Who?", max_new_tokens=3)]).answers
    assert answer.logprobs == answer.alternatives == answer.prompt_logprobs == ()
    assert not {"logprobs", "prompt_logprobs", "prompt_perplexity"} & answer.to_json().keys()


def test_a_neighbour_that_is_scored_changes_nothing(folder: Path) -> None:
    """To the bit, in steps of equal shape: with a prefix cache the second run would compute fewer tokens."""
    mine = Question("mine", "Who?", max_new_tokens=6, logprobs=True, sampling=SamplingParams(temperature=1.0, seed=3))
    theirs = Question("theirs", "What?", context=CONTEXT, max_new_tokens=6, prompt_logprobs=True)
    with engine_of(folder, prefix_cache_bytes=0) as engine:
        together = engine.ask([theirs, mine]).answers[1]
        alone = engine.ask([replace(theirs, prompt_logprobs=False), mine]).answers[1]
    assert together.token_ids == alone.token_ids
    assert together.logprobs == alone.logprobs


def test_deltas_carry_the_logprobs_of_their_tokens(engine: Engine) -> None:
    events = list(engine.stream([Question("q", "Who?", max_new_tokens=6, logprobs=True), Question("plain", "Who?")]))
    [answer] = [event.answer for event in events if isinstance(event, Finished) and event.answer.question_id == "q"]
    deltas = [event for event in events if isinstance(event, TextDelta) and event.question_id == "q"]
    assert all(len(delta.logprobs) == len(delta.alternatives) == len(delta.token_ids) for delta in deltas)
    assert tuple(item for delta in deltas for item in delta.logprobs) == answer.logprobs
    assert tuple(item for delta in deltas for item in delta.alternatives) == answer.alternatives
    plain = [event for event in events if isinstance(event, TextDelta) and event.question_id == "plain"]
    assert all(delta.logprobs == () for delta in plain)


@pytest.mark.model
@pytest.mark.parametrize("adapter", [None, "pirate"])
def test_an_answer_is_as_likely_when_it_is_read_as_when_it_was_drawn(embedded_engine: Engine, adapter: str | None):
    question = Question("drawn", "What is the capital of France?", adapter=adapter, max_new_tokens=8, logprobs=True,
                        prompt_logprobs=True, sampling=SamplingParams(temperature=1.0, seed=5))
    [drawn] = embedded_engine.ask([question]).answers
    ids = (FIRST_TOKEN, *prompt_of(drawn), *drawn.token_ids)
    [read] = embedded_engine.ask([
        Question("read", prompt_token_ids=ids, adapter=adapter, max_new_tokens=1, prompt_logprobs=True)
    ]).answers
    scores = [item.logprob for item in read.prompt_logprobs if item is not None]
    again = [item.logprob for item in (*drawn.prompt_logprobs, *drawn.logprobs) if item is not None]
    assert scores == pytest.approx(again, abs=1e-3)


def test_the_command_line_prints_them_when_asked(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "questions.json"
    file.write_text(json.dumps([
        {"id": "asked", "question": "Who?", "max_new_tokens": 3, "logprobs": True, "prompt_logprobs": True},
        {"id": "plain", "question": "Who?", "max_new_tokens": 3},
        {"id": "wrong", "question": "Who?", "logprobs": 5},
    ]))
    assert main(["ask", str(file), "--json", "--model", str(folder), "--kv-budget", str(1 << 20)]) == 1
    asked, plain, wrong = json.loads(capsys.readouterr().out)["answers"]
    assert [entry["token_id"] for entry in asked["logprobs"]] == asked["token_ids"]
    assert all(len(entry["alternatives"]) == 5 for entry in asked["logprobs"])
    assert asked["prompt_logprobs"][0] is None
    assert asked["prompt_logprobs"][1].keys() == {"token_id", "logprob"}
    assert len(asked["prompt_logprobs"]) == asked["prompt_tokens"]
    assert asked["prompt_perplexity"] > 1
    assert "logprobs" not in plain
    assert "prompt_logprobs" not in plain
    assert "true or false" in wrong["error"]
