"""The catalogue: both languages complete, and every error of the engine speaks both."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from app.board import CardValues
from app.forms import SamplesOverLimit, parse
from app.i18n import CATALOGUE, EN, LANGUAGES, PARTS, PLURAL, ZH, placeholders, say, sentence, texts
from kev_engine import errors
from kev_engine.adapters.reasons import REASONS, refusal

ROOT = Path(__file__).parents[2]


def test_both_languages_have_the_same_keys_and_none_is_empty():
    assert set(texts(EN)) == set(texts(ZH))
    for language in LANGUAGES:
        assert not [key for key, text in texts(language).items() if not text.strip()]


def test_no_key_stands_in_two_tables():
    counted = Counter(key for part in PARTS for key in part)
    assert [key for key, count in counted.items() if count > 1] == []


def test_both_texts_of_a_key_take_the_same_facts():
    for key, (english, chinese) in CATALOGUE.items():
        named = placeholders(chinese) | ({"repetition"} & placeholders(english))
        assert placeholders(english) == named, key


MANY = {"error.prompt_too_long", "error.engine_busy", "error.pool_full", "sweep.told", "kv.block_shared",
        "kv.stretch_shared", "error.doctor_large", "memory.weights", "memory.mask", "record.seconds",
        "error.footprint_refused.disagrees", "refused.too_large", "refused.archive_members",
        "refused.archive_too_large", "error.not_enough_space"}
"""What is counted there is never one."""
VERBS = r"(?!(?:is|was|has|holds|needs|answers|unpacks|matches|does|points|sends|names|ms)\b)"


def test_what_may_be_one_is_said_as_one():
    counted = re.compile(rf"\}}(?: (?:more|free|foreign|prompt|running|query|KV|allowed))* {VERBS}\w+s\b")
    assert [key for key in CATALOGUE if key not in MANY and counted.search(PLURAL.sub("", CATALOGUE[key][0]))] == []


def test_one_is_one_and_everything_else_is_many():
    assert [say(EN, "threads", count=count) for count in (0, 1, 2, "1", "1,000")] == [
        "0 threads", "1 thread", "2 threads", "1 thread", "1,000 threads"]


def test_every_key_that_the_code_names_is_in_the_catalogue():
    used = set()
    for path in (ROOT / "app").rglob("*.py"):
        used |= set(re.findall(r'say\([\w.]+, "([\w.]+)"', path.read_text("utf-8")))
    for path in (ROOT / "assets" / "js").rglob("*.js"):
        used |= set(re.findall(r'(?:say|button)\("([\w.]+)"[,)]', path.read_text("utf-8")))
    assert len(used) > 30
    assert used <= set(CATALOGUE)


ERRORS = [
    errors.PromptTooLong(9000, 8192, "model", "A"),
    errors.PromptTooLong(9000, 512, "kv", "A"),
    errors.TooManyQuestions(9, 8),
    errors.UnknownAdapter("pirat", ["pirate"], "A"),
    errors.UnknownAdapter("zzz", ["pirate"], "A"),
    errors.EngineBusy(4, 4, 1, 2),
    errors.EngineFailed(ValueError("no")),
    errors.EngineClosed(),
    errors.UnreadableFile("a.csv", "line 3", "it has 2 cells and the header 3"),
    SamplesOverLimit("too many", field="n", value=40, limit=32),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_is_one_sentence_in_either_language(error):
    english, chinese = sentence(error, EN), sentence(error, ZH)
    assert english != chinese
    assert "{" not in english + chinese
    assert english.endswith(".")
    assert chinese.endswith(("。", "。)"))


@pytest.mark.parametrize("kind", REASONS)
def test_every_reason_for_a_refusal_is_said_in_both_languages(kind):
    facts = {name: f"<{name}>" for name in placeholders(REASONS[kind])}
    error = refusal("mine", kind, "some/base", **facts)
    english, chinese = sentence(error, EN), sentence(error, ZH)
    assert error.reason in english
    assert len(re.findall(r"[\u4e00-\u9fff]", chinese)) > len(re.findall(r"[\u4e00-\u9fff]", english)) + 8
    assert all(fact in chinese for fact in [*facts.values(), "'some/base'", "mine"])


def test_a_misspelt_adapter_is_told_the_nearest_name():
    error = errors.UnknownAdapter("pirat", ["json", "pirate"], "A")
    assert all("“pirate”" in sentence(error, language) for language in LANGUAGES)


@pytest.mark.parametrize("field", ["temperature", "max_new_tokens", "seed", "top_k", "top_p", "min_p",
                                   "repetition_penalty", "presence_penalty", "frequency_penalty", "n", "draft"])
def test_every_number_of_a_card_names_its_field_and_way_out_in_both_languages(field):
    with pytest.raises(errors.InvalidField) as caught:
        parse("A", CardValues(question="Who?", **{field: "-7x"}), ())
    for language in LANGUAGES:
        told = sentence(caught.value, language)
        assert say(language, f"field.{field}") in told
        assert "-7x" in told
        assert say(language, f"way.{field}") in told
