"""Break it: each fault through the real engine; proofs, answers and picture change, and the doctor names the fault."""

from __future__ import annotations

import json

import pytest

from app.board import Board, CardValues
from app.handlers.fault_lab import FaultLabHandlers
from app.i18n import EN, LANGUAGES, ZH, say
from app.session import Session
from kev_engine.doctor.lab import NAMES
from kev_engine.isolation.faults import FAULTS

BOARD = Board({name: CardValues(f"Who is {name}?", temperature="0.7", max_new_tokens="3") for name in "AB"})


@pytest.fixture
def session():
    return Session("preset.secrets")


def final(changes):
    screen = {}
    for change in changes:
        screen.update(change)
    return screen


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"no-reset", "adapter-shift"}))
def test_a_fault_breaks_the_run_and_is_named(tiny_engine, session, fault):
    screen = final(FaultLabHandlers(tiny_engine).break_it(session, BOARD, fault))
    assert f'data-fault="{fault}"' in screen["verdict"]
    assert say(EN, "lab.broken") in screen["verdict"]
    assert NAMES[fault] in screen["findings"]
    assert say(EN, "lab.named", code=NAMES[fault]).split(":")[0].replace("'", "&#x27;") in screen["findings"]
    shown = json.loads(screen["map"])
    assert shown["leak"] or shown["missing"]
    assert [answer.right for answer in session.lab.answers.values()] == [
        answer.text for answer in tiny_engine.ask(FaultLabHandlers(tiny_engine).questions(BOARD)).answers]
    assert json.loads(screen["strip"])["texts"]


@pytest.mark.parametrize(("fault", "board", "reason"), [
    ("no-reset", BOARD, "positions"), ("adapter-shift", BOARD, "adapters"), ("one-cell", BOARD.only("A"), "one"),
])
def test_where_a_fault_is_harmless_the_page_says_so(tiny_engine, session, fault, board, reason):
    handlers = FaultLabHandlers(tiny_engine)
    screen = final(handlers.break_it(session, board, fault))
    assert say(EN, "lab.harmless") in screen["verdict"]
    assert say(EN, f"lab.harmless.{reason}") in screen["verdict"]
    assert say(ZH, f"lab.harmless.{reason}") in handlers.speak(session, ZH)["verdict"]
    assert 'data-verdict="error"' not in screen["findings"]
    assert all(answer.right == answer.broken for answer in session.lab.answers.values())


def test_mistakes_are_told_and_nothing_runs(tiny_engine, session):
    handlers = FaultLabHandlers(tiny_engine)
    screen = final(handlers.break_it(session, Board({"A": CardValues("")}), "inverted"))
    assert "mistake" in screen["verdict"]
    assert session.lab.audit is None
    screen = final(handlers.break_it(session, BOARD, "no such fault"))
    assert "no such fault" in screen["verdict"]


def test_progress_is_shown_and_every_fault_has_its_words(tiny_engine, session):
    changes = list(FaultLabHandlers(tiny_engine).break_it(session, BOARD, "inverted"))
    assert say(EN, "lab.recording") in changes[0]["verdict"]
    assert len(changes) > 3
    for fault in FAULTS:
        for language in LANGUAGES:
            assert say(language, f"fault.{fault}")
            assert say(language, f"fault.{fault}.note")
