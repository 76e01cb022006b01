"""The buttons on a real engine: what changes is yielded, mistakes stay in their card, nothing outlives its tab."""

from __future__ import annotations

import json
from itertools import pairwise

from app.board import Board, CardValues, SharedValues
from app.handlers import run
from app.handlers.history import HistoryHandlers
from app.handlers.run import TEXTS, RunHandlers
from app.history import RunLog
from app.i18n import EN, ZH, say
from app.render.mask import TEXT_BORDER
from app.session import Session
from kev_engine import Question

CARD = CardValues("Who?", "They.", temperature="0", max_new_tokens="12")


def final(changes):
    """The screen after all changes."""
    screen = {}
    for change in changes:
        screen.update(change)
    return screen


def test_whoever_sees_a_run_ended_finds_it_kept_and_may_leave(tiny_engine, tmp_path):
    log = RunLog(tmp_path / "home" / "history.sqlite")
    session = Session("preset.secrets")
    changes = RunHandlers(tiny_engine, history=HistoryHandlers(log)).run(session, Board({"A": CARD}))
    for _ in changes:
        if session.view.run is not None:
            break
    changes.close()
    assert log.search("Who").total == 1


def test_a_run_fills_cards_mask_gauge_and_summary(tiny_engine):
    session = Session("preset.secrets")
    changes = list(RunHandlers(tiny_engine).run(session, Board({"A": CARD, "B": CARD})))
    screen = final(changes)
    assert {"answer_A", "answer_B", "mask", "kv", "summary", TEXTS} <= set(screen)
    assert {card.status for card in session.view.cards.values()} <= {"stop", "length"}
    story = json.loads(screen["mask"])
    assert [part["name"] for part in story["segments"]] == ["A", "B"]
    counted = [len(texts.split(TEXT_BORDER)) for texts in json.loads(screen[TEXTS])]
    assert counted == [part["prompt"] for part in story["segments"]]
    assert sum(count for _, count, _ in story["steps"]) == len(session.view.run.stats.tokens_per_forward)
    assert json.loads(screen["kv"])["device"][0] == tiny_engine.info.weight_bytes > 0
    assert session.stream is None


def test_only_what_changed_is_yielded(tiny_engine):
    changes = list(RunHandlers(tiny_engine).run(Session("preset.secrets"), Board({"A": CARD})))
    for before, after in pairwise(changes):
        assert not [name for name, value in after.items() if before.get(name) == value]
    assert "answer_H" not in final(changes[1:])


def test_no_change_is_empty(tiny_engine, monkeypatch):
    """An empty change is an error to Gradio, after which the page waits for ever."""
    monkeypatch.setattr(run, "TICK_SECONDS", 0)
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    cards = Board({"A": CARD})
    for _ in range(2):
        for changes in (handlers.run(session, cards), handlers.sweep(session, cards, "A"),
                        handlers.audit(session, cards), handlers.audit(session, cards)):
            assert all(changes)


def test_a_mistake_stays_in_its_card_and_the_others_run(tiny_engine):
    session = Session("preset.secrets")
    cards = {"A": CARD, "B": CardValues("Who?", temperature="hot"), "C": CardValues("Who?", "word " * 3000)}
    screen = final(RunHandlers(tiny_engine).run(session, Board(cards)))
    assert "hot" in screen["answer_B"]
    assert session.view.cards["A"].answer is not None
    assert session.view.cards["C"].error.code == "prompt_too_long"
    assert session.view.notice is None


def test_stop_ends_the_answers_and_keeps_what_they_have(tiny_engine):
    session = Session("preset.secrets")
    run = RunHandlers(tiny_engine).run(session, Board({"A": CardValues("Who?", temperature="1", max_new_tokens="300")}))
    for _ in run:
        if session.stream is not None and session.view.cards["A"].token_ids:
            session.stop()
    card = session.view.cards["A"]
    assert card.status in ("cancelled", "stop")
    assert card.token_ids


def test_a_closed_generator_frees_the_engine(tiny_engine):
    session = Session("preset.secrets")
    run = RunHandlers(tiny_engine).run(session, Board({"A": CardValues("Who?", temperature="1", max_new_tokens="300")}))
    next(run)
    next(run)
    run.close()
    assert session.stream is None
    after = tiny_engine.ask([Question("Z", "Who?", max_new_tokens=2)])
    assert after.stats.blocks_leaked == 0


def test_two_tabs_at_once_do_not_mix(tiny_engine):
    handlers, one, two = RunHandlers(tiny_engine), Session("preset.secrets"), Session("preset.secrets")
    first = handlers.run(one, Board({"A": CARD}))
    second = handlers.run(two, Board({"A": CardValues("What?", temperature="0", max_new_tokens="5")}))
    for _ in zip(first, second, strict=False):
        pass
    list(first), list(second)
    assert one.view.cards["A"].answer.max_new_tokens == 12
    assert two.view.cards["A"].answer.max_new_tokens == 5


def test_the_audit_proves_and_keeps_the_answers(tiny_engine):
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    list(handlers.run(session, Board({"A": CARD, "B": CARD})))
    screen = final(handlers.audit(session, Board({"A": CARD, "B": CARD})))
    assert session.view.audit.isolated
    assert session.view.cards["A"].answer is not None
    assert 'class="ok"' in screen["verdict"]
    assert screen["verdict"].count("<tr>") == 3


def test_an_audit_tells_how_far_it_is_and_can_be_stopped(tiny_engine, monkeypatch):
    monkeypatch.setattr("app.handlers.run.TICK_SECONDS", 0)
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    told = []
    for change in handlers.audit(session, Board({"A": CARD, "B": CARD})):
        told.append(change.get("verdict", ""))
        if " of " in told[-1]:
            session.stop()
    assert any(" of " in sentence for sentence in told)
    assert session.view.audit is None
    assert session.view.auditing is None
    assert session.audit is None
    assert say(EN, "verdict.unaudited") in told[-1]


def test_another_language_renders_the_same_run(tiny_engine):
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    list(handlers.run(session, Board({"A": CARD})))
    screen = handlers.speak(session, ZH)
    assert say(ZH, f"status.{session.view.cards['A'].status}") in screen["answer_A"]


def test_a_card_run_alone_leaves_the_others_answers_in_place(tiny_engine):
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    both = Board({"A": CARD, "B": CardValues("What?", temperature="1", max_new_tokens="12")})
    list(handlers.run(session, both))
    text = session.view.cards["B"].answer.text
    screen = final(handlers.run(session, both.only("A")))
    assert set(session.view.current) == {"A"}
    assert json.loads(screen["answer_B"])["earlier"]
    assert not json.loads(screen["answer_A"])["earlier"]
    list(handlers.run(session, handlers.again(session, both, "B")))
    assert session.view.cards["B"].answer.text == text


def test_samples_of_a_question_stay_apart(tiny_engine):
    session = Session("preset.secrets")
    card = CardValues("Who?", temperature="1", max_new_tokens="8", n="3", seed="5")
    screen = final(RunHandlers(tiny_engine).run(session, Board({"A": card})))
    shown = json.loads(screen["answer_A"])["samples"]
    assert [one["text"] for one in shown] == [sample.answer.text for sample in session.view.cards["A"].samples]
    assert len({sample.token_ids for sample in session.view.cards["A"].samples}) > 1
    assert all(sample.answer.sample == k for k, sample in enumerate(session.view.cards["A"].samples))


def test_questions_read_a_shared_context(tiny_engine):
    session = Session("preset.shared")
    card = CardValues("Who?", shared="terms", temperature="0", max_new_tokens="4")
    cards = Board({"A": card, "B": card}, (SharedValues("terms", "word " * 40),))
    screen = final(RunHandlers(tiny_engine).run(session, cards))
    assert [part["name"] for part in json.loads(screen["mask"])["segments"]] == ["terms", "A", "B"]
    assert session.view.cards["A"].answer.text == session.view.cards["B"].answer.text


def test_a_file_that_is_none_is_one_mistake(tiny_engine):
    found = RunHandlers(tiny_engine).question_file("notes.txt", "hello")
    assert not found.board.cards
    assert found.mistakes[0][0] == "notes.txt"


def test_a_new_default_temperature_is_that_of_the_next_run_and_stands_in_its_answers(tiny_engine):
    handlers, session = RunHandlers(tiny_engine), Session("preset.secrets")
    cards = Board({"A": CardValues("Who?", max_new_tokens="2"), "B": CARD})
    before = tiny_engine.temperature.current()
    try:
        assert handlers.set_temperature(" 0.7 ") is None
        final(handlers.run(session, cards))
        drawn = {name: card.answer for name, card in session.view.cards.items()}
        assert [drawn[name].temperature_version for name in "AB"] == [before.version + 1] * 2
        assert [drawn[name].sampling.temperature for name in "AB"] == [0.7, 0.0]
        assert "0.70" in handlers.masthead(EN)
        assert json.loads(handlers.facts()["defaults"]) == {"temperature": "0.7"}
        for wrong in ("warm", "", "-1", "nan", "101", "<b>"):
            mistake = handlers.set_temperature(wrong)
            for language in (EN, ZH):
                shown = handlers.masthead(language, mistake)
                assert say(language, "field.default_temperature") in shown
                assert "<b>" not in shown
        assert tiny_engine.temperature.current().version == before.version + 1
    finally:
        tiny_engine.temperature.set(before.value)


def test_answers_that_end_with_one_step_are_shown_as_one(tiny_engine):
    """What a screen sends grows with the run, so that 16 ends in a row would be 16 masks."""
    board = Board({letter: CardValues("Who?", max_new_tokens="2", ignore_eos="1") for letter in "ABCDEFGHIJKLMNOP"})
    changes = list(RunHandlers(tiny_engine).run(Session("preset.secrets"), board))
    assert sum("mask" in change for change in changes) < 10
