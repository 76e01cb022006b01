"""Form values: a mistake names its field and takes nothing from the other cards."""

from __future__ import annotations

import pytest

from app import board
from app.board import CARD_IDS, FIELDS, Board, CardValues, SharedValues
from app.forms import LOCAL, PUBLIC, SamplesOverLimit, TextOverLimit, TokensOverLimit, card_of, parse, parse_all
from kev_engine import Question
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
    ("presence_penalty", "101"), ("frequency_penalty", "x"), ("n", "0"), ("draft", "65"), ("json_schema", "[1]"),
    ("json_schema", "{"), ("order", "temperature"), ("shared", "nobody"),
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
    parsed = parse_all(Board(cards), ())
    assert [question.id for question in parsed.questions] == ["A", "C"]
    assert set(parsed.mistakes) == {"B"}


def test_a_public_page_limits_what_one_visitor_asks():
    with pytest.raises(TextOverLimit):
        parse("A", CardValues("Who?", "x" * 20_001), (), PUBLIC)
    with pytest.raises(TokensOverLimit):
        parse("A", CardValues("Who?", max_new_tokens="257"), (), PUBLIC)
    parsed = parse_all(board.board((CardValues("Who?"),) * 9), (), PUBLIC)
    assert len(parsed.questions) == 8
    assert isinstance(parsed.mistakes["I"], TooManyQuestions)
    parsed = parse_all(board.board((CardValues("Who?", n="30"), CardValues("Who?", n="4"))), (), PUBLIC)
    assert len(parsed.questions) == 1
    assert isinstance(parsed.mistakes["B"], SamplesOverLimit)


def test_at_home_the_engine_alone_sets_the_limits():
    assert parse("A", CardValues("Who?", "x" * 20_001, max_new_tokens="257"), (), LOCAL).max_new_tokens == 257


def test_every_other_field_of_a_card_arrives_too():
    card = CardValues(
        "Who?", presence_penalty="0.5", frequency_penalty="-1", order="temperature,top_k,top_p,min_p,penalties",
        stop="END\\n\n\\\\o", n="3", draft="8", choices="yes\nno", ignore_eos="1", shared=" terms ",
    )
    question = parse("A", card, (), shared=[SharedValues("terms", "Clause 7.")])
    assert (question.sampling.presence_penalty, question.sampling.frequency_penalty) == (0.5, -1)
    assert question.sampling.order[-1] == "penalties"
    assert question.stop == ("END\n", "\\o")
    assert (question.n, question.draft, question.choices, question.ignore_eos) == (3, 8, ("yes", "no"), True)
    assert question.shared == "terms"
    assert parse("A", CardValues("Who?", json_schema='{"type": "object"}'), ()).json_schema == {"type": "object"}


def test_a_card_and_its_question_say_the_same():
    question = Question.from_json({
        "id": "A", "question": "Who?", "context": "They.", "adapter": "pirate", "temperature": 0.1, "top_k": 3,
        "seed": 11, "stop": ["a\nb", "\\n", " x"], "n": 2, "regex": "a|b", "max_new_tokens": 5, "ignore_eos": True,
        "order": ["temperature", "top_k", "top_p", "min_p", "penalties"], "frequency_penalty": 1e-7, "draft": 4,
    })
    assert parse("A", card_of(question), ("pirate",)) == question
    assert card_of(parse("A", CardValues("Who?"), ())) == CardValues("Who?")


@pytest.mark.parametrize(("shared", "told"), [
    ((), "no shared context"), ((SharedValues("terms", " "),), "is empty"),
    ((SharedValues("terms", "x"), SharedValues("terms", "y")), "rename one"),
])
def test_a_shared_context_that_cannot_be_read_is_refused_by_its_reader(shared, told):
    with pytest.raises(InvalidField, match=told):
        parse("A", CardValues("Who?", shared="terms"), (), shared=shared)


def test_a_shared_context_may_not_be_named_like_a_question():
    with pytest.raises(InvalidField, match="another name"):
        parse("A", CardValues("Who?", shared="B"), (), shared=[SharedValues("B", "x")])


def test_only_named_contexts_go_into_the_run():
    cards = Board({"A": CardValues("Who?", shared="one")}, (SharedValues("one", "1"), SharedValues("two", "2")))
    assert [context.name for context in parse_all(cards, ()).shared] == ["one"]


def test_a_board_survives_its_json():
    cards = Board({"B": CardValues(**{name: f"<{name}>" for name in FIELDS}), "A": CardValues()},
                  (SharedValues("terms", "x", "y"),))
    assert board.from_json(board.to_json(cards)) == cards


@pytest.mark.parametrize("text", [
    "", "[", "[" * 100_000, '{"cards": 1}', '{"cards": [1]}', '{"cards": [{"id": "A", "question": 1}]}',
    '{"cards": [{"id": "ZZ"}]}', '{"cards": [{"id": "A"}, {"id": "A"}]}', '{"shared": [{"name": null}]}',
])
def test_what_no_page_sends_is_refused(text):
    with pytest.raises(InvalidField):
        board.from_json(text)


def test_there_are_letters_for_every_card():
    assert len(set(CARD_IDS)) == 32
    assert (CARD_IDS[0], CARD_IDS[25], CARD_IDS[31]) == ("A", "Z", "AF")
