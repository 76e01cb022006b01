"""docs/sampling.md says what the code does: each example runs, each default and each number is the code's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from kev_engine import Engine, EngineConfig, Question
from kev_engine.runtime.questions_file import read_questions
from kev_engine.runtime.speculative import FIRST_PAUSE
from kev_engine.sampling.sampler import NUM_ALTERNATIVES
from kev_engine.sampling.steps import STEPS
from kev_engine.schema import DEFAULT_ORDER, SamplingParams
from tests.models.tiny import tiny_folder
from tests.sampling.test_steps import row

PAGE = (Path(__file__).parents[2] / "docs" / "sampling.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tiny_folder(tmp_path_factory.mktemp("docs"))
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20)) as started:
        yield started


def test_every_parameter_stands_there_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`|see below) \|", PAGE, re.MULTILINE))
    assert rows.keys() == {item.name for item in fields(SamplingParams)}
    for item in fields(SamplingParams):
        if item.name != "order":
            assert rows[item.name] == str(item.default), item.name
    assert f"`{', '.join(DEFAULT_ORDER)}`" in PAGE


@pytest.mark.parametrize("program", blocks("python"))
def test_programs_run(engine: Engine, program: str) -> None:
    try:
        exec(program, {"engine": engine, "Question": Question})
    finally:
        engine.temperature.set(0.0)


@pytest.mark.parametrize("content", blocks("json"))
def test_questions_are_answered(engine: Engine, tmp_path: Path, content: str) -> None:
    path = tmp_path / "questions.json"
    path.write_text(content)
    file = read_questions(str(path))
    assert not file.refused
    answers = {answer.question_id: answer for answer in engine.ask(file.questions).answers}
    assert all(answer.finish_reason in ("stop", "length") for answer in answers.values())
    if "schema" in answers:
        assert json.loads(answers["schema"].text)["age"] in range(151)
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", answers["regex"].text)
        assert answers["choices"].text in ("yes", "no", "不")


def test_the_numbers_are_right() -> None:
    logits, params = torch.tensor([[0.5, 0.3, 0.2]]).log(), {"top_k": 2, "top_p": 0.6}
    first = STEPS["top_k"](logits.clone(), [row(**params)])
    assert first.softmax(-1)[0, 0] == pytest.approx(0.625)
    assert int(torch.isfinite(STEPS["top_p"](first, [row(**params)])).sum()) == 1
    behind = STEPS["top_k"](STEPS["top_p"](logits.clone(), [row(**params)]), [row(**params)])
    assert int(torch.isfinite(behind).sum()) == 2
    assert f"pauses for {FIRST_PAUSE} tokens, then {2 * FIRST_PAUSE}" in PAGE
    assert NUM_ALTERNATIVES == 5
    assert "the five likeliest" in PAGE
