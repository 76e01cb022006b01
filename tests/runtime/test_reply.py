"""From drawn tokens to text, through the engine: characters, stop strings, grammars, reasons, errors, versions."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, Refused, TextDelta
from kev_engine.schema import Answer, Question, SamplingParams
from tests.models.tiny import tiny_folder, tiny_model
from tests.text import made

FOREIGN = "天空是蓝色的。😀👩\u200d👩\u200d👧 naïve"
HOT = SamplingParams(temperature=1.5, seed=11)


def byte_fallback_folder(path: Path) -> Path:
    tokenizer = made.llama_like()
    model = tiny_model("llama", vocab_size=len(tokenizer), max_position_embeddings=1024)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tiny_folder(tmp_path_factory.mktemp("reply"), max_position_embeddings=1024)
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 21), check=True) as started:
        yield started


@pytest.fixture(scope="module")
def byte_fallback_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = byte_fallback_folder(tmp_path_factory.mktemp("fallback"))
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 21), check=True) as started:
        yield started


@pytest.fixture(params=["byte-level", "byte-fallback", pytest.param("embedded", marks=pytest.mark.model)])
def any_engine(request: pytest.FixtureRequest) -> Engine:
    names = {"byte-level": "engine", "byte-fallback": "byte_fallback_engine", "embedded": "embedded_engine"}
    found: Engine = request.getfixturevalue(names[request.param])
    return found


def watch(engine: Engine, questions: list[Question]) -> tuple[dict[str, Answer], dict[str, list[str]]]:
    """Answers and the texts of their deltas, by question."""
    answers: dict[str, Answer] = {}
    texts: dict[str, list[str]] = {question.id: [] for question in questions}
    for event in engine.stream(questions):
        if isinstance(event, TextDelta):
            texts[event.question_id].append(event.text)
        elif isinstance(event, Finished | Refused):
            answers[event.answer.question_id] = event.answer
    return answers, texts


def free(count: int, **fields: Any) -> list[Question]:
    fields.setdefault("max_new_tokens", 40)
    return [Question(f"free{index}", f"Tell me of {index}.", sampling=replace(HOT, seed=index), **fields)
            for index in range(count)]


def test_characters_arrive_whole(any_engine: Engine) -> None:
    """Each character takes up to four tokens; other answers are cut at different tokens of the same text."""
    prompt = (5, 6, 7)
    asked = [Question("whole", prompt_token_ids=prompt, choices=(FOREIGN,), max_new_tokens=100)]
    asked += [
        Question(f"cut{length}", prompt_token_ids=prompt, choices=(FOREIGN,), max_new_tokens=length)
        for length in range(1, 8)
    ]
    answers, texts = watch(any_engine, asked)
    assert answers["whole"].text == FOREIGN
    assert answers["whole"].finish_reason == "stop"
    for question_id, answer in answers.items():
        assert "".join(texts[question_id]) == answer.text
        assert "�" not in "".join(texts[question_id][:-1]), "a mark was shown that a later token could have mended"
        assert FOREIGN.startswith(answer.text.rstrip("�"))
    assert len({answers[f"cut{length}"].text for length in range(1, 8)}) > 1
    assert any(answer.text.endswith("�") for answer in answers.values()), "no cut went through a character"


def test_the_first_text_comes_when_the_first_character_is_whole(byte_fallback_engine: Engine) -> None:
    [slow, none, fast] = byte_fallback_engine.ask([
        Question("slow", "Say it.", choices=("😀",), max_new_tokens=9),
        Question("none", "Say it.", regex="[^a-z ]{3}", stop=("�",), max_new_tokens=1, choices=None),
        Question("fast", "Say it.", choices=("the",), max_new_tokens=9),
    ]).answers
    assert slow.text == "😀"
    assert slow.ttft_ms is not None
    assert slow.first_text_ms is not None
    assert slow.first_text_ms > slow.ttft_ms + slow.tpot_ms, "four tokens make one character"
    assert fast.first_text_ms - fast.ttft_ms < slow.first_text_ms - slow.ttft_ms
    assert none.text in ("", *(chr(code) for code in range(128)))
    assert (none.first_text_ms is None) == (none.text == "")


def test_stop_strings_end_the_text_wherever_tokens_begin(engine: Engine) -> None:
    """Stretches of the free text as stop strings: the text ends in front of them, and nothing of them was shown."""
    [plain] = engine.ask(free(1)).answers
    assert len(plain.text) > 30
    for length in (1, 3, 7):
        stops = sorted({plain.text[start : start + length] for start in range(0, len(plain.text) - length, 5)})
        asked = [replace(free(1)[0], id=f"{index}", stop=(stop,)) for index, stop in enumerate(stops)]
        answers, texts = watch(engine, asked)
        for index, stop in enumerate(stops):
            answer = answers[str(index)]
            assert answer.text == "".join(texts[str(index)]) == plain.text[: plain.text.index(stop)]
            assert answer.finish_reason == "stop"
            assert answer.matched_stop == stop
            assert answer.token_ids == plain.token_ids[: answer.output_tokens]


def test_text_held_back_in_vain_is_shown_at_the_end(engine: Engine) -> None:
    [plain] = engine.ask(free(1)).answers
    never = plain.text[-2:] + "never"
    answers, texts = watch(engine, [replace(free(1)[0], stop=(never,))])
    assert answers["free0"].text == "".join(texts["free0"]) == plain.text
    assert answers["free0"].finish_reason == "length"
    assert answers["free0"].matched_stop is None


def test_every_reason_to_finish(engine: Engine) -> None:
    """In one run: a stop token, a stop string, a grammar that is done, the length, and a cancelled one."""
    stop_id = min(engine._facts.stop_token_ids)
    [plain] = engine.ask(free(1)).answers
    asked = [
        Question("token", prompt_token_ids=(5, 6), regex="[a-z]", max_new_tokens=9),
        replace(free(1)[0], id="string", stop=(plain.text[4:6],)),
        Question("choice", prompt_token_ids=(5, 6), choices=("yes", "no"), max_new_tokens=9),
        replace(free(1)[0], id="length", max_new_tokens=2),
        replace(free(1)[0], id="cancelled", max_new_tokens=900, ignore_eos=True),
    ]
    stream = engine.stream(asked)
    answers = {}
    for event in stream:
        if isinstance(event, Finished):
            answers[event.answer.question_id] = event.answer
            if len(answers) == 4:
                stream.cancel("cancelled")
    assert {name: answer.finish_reason for name, answer in answers.items()} == {
        "token": "stop", "string": "stop", "choice": "stop", "length": "length", "cancelled": "cancelled"}
    assert answers["string"].matched_stop == plain.text[4:6]
    assert answers["choice"].text in ("yes", "no")
    assert len(answers["token"].text) == 1
    assert stop_id not in answers["length"].token_ids


def test_a_stop_token_belongs_to_the_ids_and_not_to_the_text(engine: Engine) -> None:
    """`[a-z]*` may always end; a stop token that is drawn there is the last id."""
    asked = [
        Question(f"q{seed}", prompt_token_ids=(5, 6), regex="[a-z]*", max_new_tokens=60,
                 sampling=SamplingParams(temperature=3.0, seed=seed))
        for seed in range(12)
    ]
    answers = engine.ask(asked).answers
    stopped = [answer for answer in answers if answer.finish_reason == "stop"]
    assert stopped
    for answer in stopped:
        assert answer.token_ids[-1] in engine._facts.stop_token_ids
        assert "<|" not in answer.text
        assert re.fullmatch("[a-z]*", answer.text)


SCHEMA = {
    "type": "object", "required": ["name", "age"], "additionalProperties": False,
    "properties": {"name": {"enum": ["Ann", "李"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
}


def test_grammars_hold_beside_free_questions(any_engine: Engine) -> None:
    """Three kinds and free ones in one pass: each fits, and the free ones are as without them."""
    params = SamplingParams(temperature=1.5, seed=2)
    neighbours = [replace(question, max_new_tokens=10) for question in free(2)]
    held = [
        Question("schema", prompt_token_ids=(5, 6), json_schema=SCHEMA),
        Question("regex", prompt_token_ids=(5, 7), regex=r"[0-9]{4}-[0-9]{2}", sampling=params),
        Question("choices", prompt_token_ids=(5, 8), choices=("yes", "no", "不"), sampling=params),
    ]
    answers = {answer.question_id: answer for answer in any_engine.ask([*neighbours, *held]).answers}
    assert all(answers[question.id].finish_reason == "stop" for question in held)
    person = json.loads(answers["schema"].text)
    assert person["name"] in ("Ann", "李")
    assert person["age"] in range(100)
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}", answers["regex"].text)
    assert answers["choices"].text in ("yes", "no", "不")
    alone = {answer.question_id: answer for answer in any_engine.ask(neighbours).answers}
    assert {name: answers[name].token_ids for name in alone} == {name: alone[name].token_ids for name in alone}


def test_what_nothing_can_fit_is_refused_before_anything_runs(engine: Engine) -> None:
    impossible = {"type": "integer", "minimum": 5, "maximum": 3}
    stream = engine.stream([Question("no", "x", json_schema=impossible), *free(1, n=1)])
    plan = next(stream)
    assert [segment.name for segment in plan.segments] == ["free0"]
    refused = next(stream)
    assert isinstance(refused, Refused)
    assert refused.question_id == "no"
    assert "json_schema" in str(refused.error)
    assert [event.answer.finish_reason for event in stream if isinstance(event, Finished)] == ["length"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_cannot_be_used_end_that_question_only(tmp_path: Path, bad: float) -> None:
    """One token's embedding is broken: whoever reads it ends in an error, before or after its first tokens."""
    folder = tiny_folder(tmp_path, tie_word_embeddings=False)
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20), check=True) as engine:
        [plain] = engine.ask(free(1, max_new_tokens=9)).answers
        poison = plain.token_ids[4]
        assert poison not in plain.token_ids[:4]
        broken = Question("broken", prompt_token_ids=(5, poison, 6), n=2)
        others = [
            Question("mine", prompt_token_ids=(5, 6, 7), max_new_tokens=6, prompt_logprobs=True),
            Question("scored", prompt_token_ids=(5, poison, 6), prompt_logprobs=True),
        ]
        right = engine.ask(others[:1]).answers[0]
        weight = engine._runner.model.get_input_embeddings().weight
        with torch.inference_mode():
            weight[poison] = bad
        answers = engine.ask([broken, *others, *free(1, max_new_tokens=9)]).answers
    assert [(answer.question_id, answer.sample) for answer in answers] == [
        ("broken", 0), ("broken", 1), ("mine", 0), ("scored", 0), ("free0", 0)]
    assert [answer.finish_reason for answer in answers] == ["error", "error", "length", "error", "error"]
    assert answers[2].token_ids == right.token_ids
    assert answers[2].prompt_perplexity == pytest.approx(right.prompt_perplexity, rel=1e-5)
    assert "not finite" in str(answers[0].error)
    assert "prompt token" in str(answers[3].error)
    assert answers[4].token_ids == plain.token_ids[:5], "what was drawn before stays"
    assert plain.text.startswith(answers[4].text)


def test_each_run_keeps_one_version_of_the_temperature(engine: Engine) -> None:
    """A thread sets it all the time; every answer of a run, refused ones too, names one version, with its own value."""
    written = {engine.temperature.current().version: engine.temperature.current().value}
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            value = (number % 17) / 10
            written[engine.temperature.set(value)] = value
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        asked = [*free(3, max_new_tokens=3), Question("nobody", "x", adapter="nobody")]
        asked = [replace(question, sampling=SamplingParams(seed=1)) for question in asked]
        asked.append(Question("own", "x", sampling=SamplingParams(temperature=0.7), max_new_tokens=3))
        runs = [engine.ask(asked).answers for _ in range(12)]
    finally:
        done.set()
        writer.join()
        engine.temperature.set(0.0)
    versions = [{answer.temperature_version for answer in answers} for answers in runs]
    assert all(len(version) == 1 for version in versions)
    assert len(set.union(*versions)) > 1, "it never changed between two runs"
    for answers in runs:
        for answer in answers:
            own = 0.7 if answer.question_id == "own" else written[answer.temperature_version]
            assert answer.sampling.temperature == own
        assert answers[3].finish_reason == "error"
