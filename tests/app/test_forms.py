"""Form values: a mistake names its field and takes nothing from the other cards."""

from __future__ import annotations

import pytest

from app.forms import LOCAL, PUBLIC, CardValues, TextOverLimit, TokensOverLimit, parse, parse_all
from kev_engine.errors import InvalidField, TooManyQuestions, UnknownAdapter


def test_an_untouched_card_takes_every_default():
    question = parse("A", CardValues(question="Who?"), ())
    assert (question.id, question.question, question.context, question.adapter) == ("A", "Who?", "", None)
    assert question.sampling.temperature is None
    assert question.sampling.seed is None
    assert question.max_new_tokens == 64


def test_every_field_arrives():
    card = CardValues("Who?", "They.", "pirate", " 0.5 ", "12", "7", "Be brief.", "40", "0.9", "0.05", "1.1")
    question = parse("B", card, ("pirate",))
    sampling = question.sampling
    assert (question.context, question.adapter, question.system) == ("They.", "pirate", "Be brief.")
    assert (sampling.temperature, question.max_new_tokens, sampling.seed) == (0.5, 12, 7)
    assert (sampling.top_k, sampling.top_p, sampling.min_p, sampling.repetition_penalty) == (40, 0.9, 0.05, 1.1)


@pytest.mark.parametrize(("field", "text"), [
    ("question", ""), ("question", " \n"),
    ("temperature", "-0.1"), ("temperature", "warm"), ("temperature", "nan"), ("temperature", "inf"),
    ("temperature", "0,5"), ("max_new_tokens", "0"), ("max_new_tokens", "1.5"), ("seed", "-1"), ("seed", "x"),
    ("top_k", "-1"), ("top_p", "0"), ("top_p", "1.1"), ("min_p", "1"), ("repetition_penalty", "0"),
])
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field, text):
    with pytest.raises(InvalidField) as caught:
        parse("A", CardValues(**{"question": "Who?", field: text}), ())
    assert caught.value.field == field


def test_an_unknown_adapter_is_never_the_base():
    with pytest.raises(UnknownAdapter):
        parse("A", CardValues("Who?", adapter="pirat"), ("pirate",))


def test_one_mistake_leaves_the_other_cards_alone():
    cards = {"A": CardValues("Who?"), "B": CardValues("Who?", temperature="hot"), "C": CardValues("Why?")}
    parsed = parse_all(cards, ())
    assert [question.id for question in parsed.questions] == ["A", "C"]
    assert set(parsed.mistakes) == {"B"}


def test_a_public_page_limits_what_one_visitor_asks():
    with pytest.raises(TextOverLimit):
        parse("A", CardValues("Who?", "x" * 20_001), (), PUBLIC)
    with pytest.raises(TokensOverLimit):
        parse("A", CardValues("Who?", max_new_tokens="257"), (), PUBLIC)
    parsed = parse_all({str(k): CardValues("Who?") for k in range(9)}, (), PUBLIC)
    assert len(parsed.questions) == 8
    assert isinstance(parsed.mistakes["8"], TooManyQuestions)


def test_at_home_the_engine_alone_sets_the_limits():
    assert parse("A", CardValues("Who?", "x" * 20_001, max_new_tokens="257"), (), LOCAL).max_new_tokens == 257
