"""The demo adapters on the embedded model: held-out questions, real generation, one packed run, plain criteria."""

import json
import re
from pathlib import Path

import pytest

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question, Run, SamplingParams

ASSETS = Path(__file__).parents[2] / "assets" / "adapters"
NAMES = ("json", "pirate", "terse")
HELD_OUT = (
    ("What is the capital of Germany?", ""),
    ("How do I bake a cake?", ""),
    ("What did the boy lose?", "On the way home the boy lost his red hat, but his sister found it in the park."),
)
PIRATE = re.compile(r"\b(arr|ahoy|aye|avast|nay|matey|hearty|blimey|shiver|yo ho|ye|be)\b", re.IGNORECASE)
MAX_BYTES = 4 << 20


@pytest.fixture(scope="module")
def run(embedded_home: Path) -> Run:
    """Every held-out question under the base and every adapter, in one run."""
    config = EngineConfig(
        home=embedded_home, kv_budget_bytes=256 << 20, adapters={name: str(ASSETS / name) for name in NAMES}
    )
    questions = [
        Question(id=f"{adapter}-{number}", question=question, context=context, adapter=adapter, max_new_tokens=40,
                 sampling=SamplingParams(temperature=0.0))
        for adapter in (None, *NAMES) for number, (question, context) in enumerate(HELD_OUT)
    ]
    with Engine(config) as engine:
        return engine.ask(questions)


def texts(run: Run, adapter: str | None) -> list[str]:
    chosen = [answer for answer in run.answers if answer.adapter == adapter]
    assert len(chosen) == len(HELD_OUT)
    assert all(answer.error is None for answer in chosen)
    return [answer.text.strip() for answer in chosen]


@pytest.mark.model
def test_the_base_shows_none_of_the_behaviours(run):
    for text in texts(run, None):
        assert not re.search(r"\b(arr|ahoy|matey|avast|hearty)\b", text, re.IGNORECASE)
        assert not text.startswith("{")
    assert max(len(text.split()) for text in texts(run, None)) > 8


@pytest.mark.model
def test_pirate_talks_like_one(run):
    for text in texts(run, "pirate"):
        assert len(PIRATE.findall(text)) >= 2, text


@pytest.mark.model
def test_terse_needs_a_handful_of_words(run):
    for text in texts(run, "terse"):
        assert 1 <= len(text.split()) <= 6, text


@pytest.mark.model
def test_json_answers_with_one_object(run):
    for text in texts(run, "json"):
        answer = json.loads(text)
        assert list(answer) == ["answer"], text
        assert len(answer["answer"].split()) >= 2, text


@pytest.mark.model
def test_the_right_facts_survive_the_manner(run):
    for name in NAMES:
        capital, _, lost = texts(run, name)
        assert "berlin" in capital.lower(), (name, capital)
        assert re.search(r"\bhat\b", lost.lower()), (name, lost)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_is_small_plain_and_knows_no_machine(name):
    config, weights = ASSETS / name / "adapter_config.json", ASSETS / name / "adapter_model.safetensors"
    assert weights.stat().st_size <= MAX_BYTES
    assert json.loads(config.read_text())["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert not re.search(r"\"[^\"]*(/home|/root|/tmp|/work|\.cache)", config.read_text())
    pairs = [json.loads(line) for line in (ASSETS / "data" / f"{name}.jsonl").read_text().splitlines()]
    assert len(pairs) >= 100
    assert sum("context" in pair for pair in pairs) >= 20
    trained = {pair["question"] for pair in pairs}
    assert not trained & {question for question, _ in HELD_OUT}
