"""A temperature sweep: its figures by hand, its knee by the stated rule, and one prompt for all of it."""

from __future__ import annotations

import json

import pytest

from app import sweep
from app.board import Board, CardValues
from app.handlers.run import RunHandlers
from app.i18n import EN, say
from app.session import Session
from app.sweep import Point
from kev_engine import Question


def test_distinct_counts_different_ngrams_over_all():
    assert sweep.distinct([[1, 2, 1, 2], [1, 2]], 1) == 2 / 6
    assert sweep.distinct([[1, 2, 1, 2], [1, 2]], 2) == 2 / 4
    assert sweep.distinct([[1]], 2) == 0
    assert sweep.distinct([], 1) == 0


def test_self_agreement_is_one_for_equal_samples_and_counts_what_stands_in_the_same_order():
    assert sweep.self_agreement([[1, 2, 3]] * 3) == 1
    assert sweep.self_agreement([[1, 2], [3, 4]]) == 0
    assert sweep.self_agreement([[1, 2, 3, 4], [2, 4]]) == 2 * 2 / 6
    assert sweep.self_agreement([[1, 2], [1, 2], [3, 4]]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("expected", "share"), [
    ("1911", 2 / 4), ("In 1911", 1 / 4), ("191", 0), ("", 0), ("大桥", 1 / 4),
])
def test_accuracy_looks_for_whole_words(expected, share):
    texts = ["In 1911, ice.", "It was 1911!", "In 1912", "林德大桥在那里"]
    if expected:
        assert sweep.accuracy(texts, expected) == share
    assert (sweep.measured(0.1, [[1]] * 4, texts, expected).accuracy is None) == (not expected)


def points(*diversity, accuracy=None):
    return [Point(value, 0, d, 0, None if accuracy is None else accuracy[k])
            for k, (value, d) in enumerate(zip(sweep.TEMPERATURES, diversity, strict=True))]


@pytest.mark.parametrize(("diversity", "accuracy", "knee"), [
    ((0.2, 0.7, 0.8, 0.85, 0.9), None, 1),
    ((0.2, 0.4, 0.8, 0.85, 0.9), None, 2),
    ((0.2, 0.375, 0.55, 0.725, 0.9), None, None),
    ((0.2, 0.25, 0.3, 0.35, 0.9), None, None),
    ((0.5, 0.58, 0.58, 0.58, 0.58), None, None),
    ((0.9, 0.8, 0.7, 0.6, 0.5), None, None),
    ((0.2, 0.7, 0.8, 0.85, 0.9), (1, 0.5, 1, 1, 0.5), 2),
    ((0.2, 0.7, 0.8, 0.85, 0.9), (1, 0.5, 0.5, 0.5, 0.5), None),
])
def test_the_knee_is_farthest_above_the_line_among_what_still_answers_right(diversity, accuracy, knee):
    found = sweep.knee(points(*diversity, accuracy=accuracy))
    assert found == knee


def test_a_sweep_asks_the_same_at_every_temperature():
    question = Question("A", "Who?", context="They.", n=6, max_new_tokens=3)
    asked = sweep.questions(question, seed=9)
    assert [one.sampling.temperature for one in asked] == list(sweep.TEMPERATURES)
    assert {(one.n, one.sampling.seed, one.question, one.context) for one in asked} == {(6, 9, "Who?", "They.")}
    assert {one.n for one in sweep.questions(Question("A", "Who?"), 9)} == {4}


def test_a_sweep_is_one_run_over_one_stored_prompt(tiny_engine):
    session, handlers = Session("preset.secrets"), RunHandlers(tiny_engine)
    cards = Board({"A": CardValues("Who?", max_new_tokens="5", seed="4", expected="they"), "B": CardValues("What?")})
    changes = list(handlers.sweep(session, cards, "A"))
    shown = {}
    for change in changes:
        shown |= change
    told = [json.loads(change["answer_A"])["sweep"]["told"] for change in changes if "answer_A" in change]
    assert any("prompt tokens" in one for one in told), "what is to be read, before the first token"
    found = json.loads(shown["answer_A"])
    assert [len(texts) for _, texts in found["sweep"]["groups"]] == [4] * 5
    assert [point[0] for point in found["sweep"]["points"]] == list(sweep.TEMPERATURES)
    assert all(point[4] is not None for point in found["sweep"]["points"])
    assert "seed 4" in found["sweep"]["told"]
    assert say(EN, "sweep.samples", count=4) in found["sweep"]["told"] or "4 samples" in found["sweep"]["told"]
    assert session.view.plan.layout.parents == (None, *[0] * 20)
    assert shown["answer_B"] == ""
    list(handlers.run(session, cards.only("A")))
    assert "samples" in json.loads(handlers.speak(session, EN)["answer_A"])


def test_a_mistake_ends_a_sweep_at_its_card(tiny_engine):
    session, handlers = Session("preset.secrets"), RunHandlers(tiny_engine)
    [change] = list(handlers.sweep(session, Board({"A": CardValues("Who?", top_p="2")}), "A"))
    assert "top_p" in json.loads(change["answer_A"])["mistake"].lower() or json.loads(change["answer_A"])["mistake"]
    assert session.view.plan is None
