"""Grammars: whatever is drawn under the mask fits, what nothing can fit is refused, and steps can be taken back."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kev_engine.errors import InvalidField
from kev_engine.sampling.grammar import Grammar, GrammarTokenizer, compile_grammar
from kev_engine.sampling.sampler import RowState, sample
from kev_engine.schema import Question, SamplingParams
from tests.models.tiny import tiny_tokenizer

ROUNDS = 200 if os.environ.get("KEV_SOAK") == "1" else 8
PERSON = {
    "type": "object", "required": ["name", "age", "tags"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a\"b", "中文", "x y"]}, "maxItems": 3},
        "good": {"type": "boolean"},
    },
}
CHOICES = ("yes", "yes, please", "不", "a/b\\c", 'say "hi"', "new\nline", "😀", "[x]{2}", " lead")


@pytest.fixture(scope="module")
def grammar_tokenizer(embedded_tokenizer: Any) -> GrammarTokenizer:
    return GrammarTokenizer(embedded_tokenizer, len(embedded_tokenizer), [embedded_tokenizer.eos_token_id, 0])


def compiled(tokenizer: GrammarTokenizer, **fields: Any) -> Grammar:
    grammar = compile_grammar(Question("q", "x", **fields), tokenizer)
    assert grammar is not None
    return grammar


def draw(grammar: Grammar, tokenizer: GrammarTokenizer, seed: int, limit: int = 400) -> list[int]:
    """Tokens drawn from a flat distribution under the mask until the answer ends by itself."""
    ids: list[int] = []
    params = SamplingParams(temperature=1.0)
    logits = torch.zeros(1, tokenizer.vocab_size)
    for _ in range(limit):
        if grammar.is_done:
            return ids
        sampled = sample(logits, [RowState(params, seed, output_token_ids=ids, allowed=grammar.mask())])
        assert sampled.errors == (None,)
        if sampled.token_ids[0] in tokenizer.stop_ids:
            assert grammar.is_complete
            return ids
        grammar.consume(sampled.token_ids[0])
        ids.append(sampled.token_ids[0])
    raise AssertionError("the answer did not end")


def is_person(text: str) -> bool:
    value = json.loads(text)
    return (
        set(value) - {"good"} == {"name", "age", "tags"} and isinstance(value.get("good", True), bool)
        and 1 <= len(value["name"]) <= 8 and value["age"] in range(151)
        and set(value["tags"]) <= {'a"b', "中文", "x y"} and len(value["tags"]) <= 3
    )


@pytest.mark.parametrize(("fields", "fits"), [
    ({"json_schema": PERSON}, is_person),
    ({"json_schema": {"type": "integer", "minimum": -5, "maximum": 17}}, lambda text: -5 <= json.loads(text) <= 17),
    ({"json_schema": {"const": {"k": [1, None]}}}, lambda text: json.loads(text) == {"k": [1, None]}),
    ({"regex": r"[A-Z][a-z]{2,6}/\d{1,3}(€|元)"}, re.compile(r"[A-Z][a-z]{2,6}/[0-9]{1,3}(€|元)").fullmatch),
    ({"regex": r"(ab?c){1,4}"}, re.compile(r"(ab?c){1,4}").fullmatch),
    ({"choices": CHOICES}, CHOICES.__contains__),
], ids=["person", "integer", "const", "regex", "repetition", "choices"])
def test_whatever_is_drawn_fits(
    embedded_tokenizer: Any, grammar_tokenizer: GrammarTokenizer, fields: dict[str, Any], fits: Callable[[str], Any]
) -> None:
    texts = set()
    for seed in range(ROUNDS):
        ids = draw(compiled(grammar_tokenizer, **fields), grammar_tokenizer, seed)
        text = embedded_tokenizer.decode(ids)
        assert fits(text), text
        texts.add(text)
    assert len(texts) > 1 or "const" in str(fields)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_can_be_spelt(
    embedded_tokenizer: Any, grammar_tokenizer: GrammarTokenizer, choice: str
) -> None:
    grammar = compiled(grammar_tokenizer, choices=CHOICES)
    ids = embedded_tokenizer(choice, add_special_tokens=False)["input_ids"]
    assert grammar.count_allowed(ids) == len(ids)
    for token_id in ids:
        assert grammar.mask()[token_id]
        grammar.consume(token_id)
    assert grammar.is_complete
    assert grammar.mask()[list(grammar_tokenizer.stop_ids)].all()
    assert grammar.is_done == (choice != "yes"), "after yes it may go on"


def test_a_free_question_has_no_grammar(grammar_tokenizer: GrammarTokenizer) -> None:
    assert compile_grammar(Question("q", "x"), grammar_tokenizer) is None


@pytest.mark.parametrize(("fields", "reason"), [
    ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 3}}, "greater than maximum"),
    ({"json_schema": {"enum": [1], "type": "string"}}, "incompatible types"),
    ({"json_schema": {"type": "object", "required": ["a"], "properties": {"a": False}}}, "'a' is unsatisfiable"),
    ({"json_schema": {"type": "array", "items": False, "minItems": 1}}, "unsatisfiable"),
    ({"json_schema": {"type": "strin"}}, "Invalid type: strin"),
    ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
    ({"json_schema": {"$ref": "#/nope"}}, "does not exist"),
    ({"json_schema": {"type": "string", "pattern": "("}}, "unclosed group"),
    ({"regex": "("}, "unclosed group"),
    ({"regex": "(?!a)b"}, "look-around"),
    ({"regex": r"a[^\s\S]"}, "no text fits it"),
    ({"regex": r"[^\s\S]"}, "no text fits it"),
    ({"regex": ""}, "at least one character"),
    ({"choices": ()}, "none empty"),
    ({"choices": ("a", "")}, "none empty"),
])
def test_what_nothing_can_fit_is_refused_in_one_line(
    grammar_tokenizer: GrammarTokenizer, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidField, match=re.escape(reason)) as caught:
        compile_grammar(Question("q", "x", **fields), grammar_tokenizer)
    assert caught.value.field in fields
    assert caught.value.question_id == "q"
    assert "\n" not in str(caught.value)


def test_a_rollback_leads_back_to_the_same_masks(grammar_tokenizer: GrammarTokenizer) -> None:
    rng = random.Random(4)
    for seed in range(ROUNDS // 4):
        ids = draw(compiled(grammar_tokenizer, json_schema=PERSON), grammar_tokenizer, seed)
        grammar = compiled(grammar_tokenizer, json_schema=PERSON)
        masks = []
        for token_id in ids:
            masks.append(grammar.mask())
            grammar.consume(token_id)
        at = len(ids)
        while at:
            step = rng.randint(1, at)
            grammar.rollback(step)
            at -= step
            assert torch.equal(grammar.mask(), masks[at])
        with pytest.raises(ValueError, match="fewer than 1"):
            grammar.rollback(1)


def test_a_token_that_is_not_allowed_changes_nothing(
    embedded_tokenizer: Any, grammar_tokenizer: GrammarTokenizer
) -> None:
    grammar = compiled(grammar_tokenizer, regex="[0-9]{3}")
    digit, letter = embedded_tokenizer("7x", add_special_tokens=False)["input_ids"]
    assert grammar.count_allowed([digit, digit, letter, digit]) == 2
    before = grammar.mask()
    with pytest.raises(ValueError, match="not allowed"):
        grammar.consume(letter)
    assert torch.equal(grammar.mask(), before)
    grammar.consume(digit)


def test_a_copy_goes_on_by_itself(embedded_tokenizer: Any, grammar_tokenizer: GrammarTokenizer) -> None:
    grammar = compiled(grammar_tokenizer, choices=("ab", "cd"))
    first = embedded_tokenizer("a", add_special_tokens=False)["input_ids"][0]
    copy, before = grammar.copy(), grammar.mask()
    copy.consume(first)
    assert torch.equal(grammar.mask(), before)
    assert not torch.equal(copy.mask(), before)


@pytest.mark.parametrize("extra", [0, 60, -5])
def test_the_mask_is_as_wide_as_the_logits(extra: int) -> None:
    """Logits may be wider than the vocabulary, padded, or narrower; a padded id is never allowed."""
    tokenizer = tiny_tokenizer()
    width = len(tokenizer) + extra
    mask = compiled(GrammarTokenizer(tokenizer, width, [2]), regex="[a-z]+").mask()
    assert mask.shape == (width,)
    assert mask.dtype == torch.bool
    assert not mask[len(tokenizer) :].any()
    assert mask.any()


def test_a_schema_is_held_beside_free_rows(embedded_tokenizer: Any, grammar_tokenizer: GrammarTokenizer) -> None:
    """One row of three has a grammar; the others draw what they draw without it."""
    logits = torch.randn(3, grammar_tokenizer.vocab_size, generator=torch.Generator().manual_seed(1))
    free = [RowState(SamplingParams(temperature=1.0), seed) for seed in range(3)]
    mixed = [free[0], RowState(free[1].params, 1, allowed=compiled(grammar_tokenizer, choices=("7",)).mask()), free[2]]
    alone, together = sample(logits, free).token_ids, sample(logits, mixed).token_ids
    assert embedded_tokenizer.decode([together[1]]) == "7"
    assert (together[0], together[2]) == (alone[0], alone[2])
