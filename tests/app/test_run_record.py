"""A kept run: written and read again it is the same, asked again it answers the same, and a bad file is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from app.board import Board, CardValues, SharedValues, board
from app.forms import parse_all
from app.handlers.history import HistoryHandlers
from app.handlers.run import RunHandlers
from app.history import RunLog
from app.i18n import EN, LANGUAGES, ZH, say
from app.render.compare import comparison
from app.render.history import run_detail, run_list
from app.render.mask_svg import mask_svg
from app.render.report import csv_table, html_report
from app.run_record import RunRecord, Segment, from_json
from app.session import Session
from app.snippets import curl, python, questions_again
from kev_engine import pack
from kev_engine.errors import InvalidField
from kev_engine.isolation import mask
from tests.app.test_history import run_record

HOSTILE = "<img src=x onerror=alert(1)>${alert(1)}</script>"
BOARD = board(
    (CardValues("Who?", "They.", temperature="0", max_new_tokens="12", shared="lore"),
     CardValues("What?", temperature="1", max_new_tokens="6", n="2", top_k="40", stop="zzz\\n"),
     CardValues("Why?", temperature="hot")),
    (SharedValues("lore", "A long story about a bridge."),))


@pytest.fixture
def history(tmp_path) -> HistoryHandlers:
    return HistoryHandlers(RunLog(tmp_path / "history.sqlite"))


@pytest.fixture
def session() -> Session:
    return Session("preset.secrets")


def ran(tiny_engine, history: HistoryHandlers, session: Session, asked: Board = BOARD) -> RunRecord:
    """The record of a run that the page made."""
    list(RunHandlers(tiny_engine, history=history).run(session, asked))
    assert session.history.error is None
    record = history.log.get(history.log.search().rows[0].id)
    assert record is not None
    return record


def test_a_run_is_kept_with_all_that_was_asked_and_drawn(tiny_engine, history, session):
    record = ran(tiny_engine, history, session)
    assert record.board == BOARD
    assert [row["id"] for row in record.questions] == ["A", "B"]
    assert set(record.refused) == {"C"}
    answer = record.answers_of("A")[0]
    assert answer["text"] == session.view.cards["A"].answer.text
    assert {"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "order"} <= set(answer["sampling"])
    assert [one["sample"] for one in record.answers_of("B")] == [0, 1]
    assert record.engine["digest"] == tiny_engine.info.digest
    assert record.run["forwards"] == len(session.view.run.stats.tokens_per_forward)
    assert {"python", "torch", "transformers", "gradio"} <= set(record.versions)
    assert record.layout.lengths == session.view.layout.lengths
    assert record.layout.parents == session.view.layout.parents


def test_an_audit_joins_the_run_that_asked_the_same(tiny_engine, history, session):
    handlers = RunHandlers(tiny_engine, history=history)
    asked = BOARD.only("A", "B")
    list(handlers.run(session, asked))
    list(handlers.audit(session, asked.only("A")))
    row = history.log.search().rows[0]
    assert row.isolated is None
    list(handlers.audit(session, asked))
    assert history.log.search().rows[0].isolated is True
    assert history.log.get(row.id).audit["foreign_cells_allowed"] == 0


def test_exported_and_imported_it_fills_the_same_cards_and_answers_the_same(tiny_engine, history, session, tmp_path):
    cold = board(tuple(replace(card, temperature="0") for card in BOARD.only("A", "B").cards.values()), BOARD.shared)
    record = ran(tiny_engine, history, session, cold)
    elsewhere = HistoryHandlers(RunLog(tmp_path / "elsewhere.sqlite"))
    other = Session("preset.secrets")
    elsewhere.bring(other, "run.json", record.to_json())
    opened = other.history.opened
    assert opened.record == record
    assert opened.record.board == cold
    assert elsewhere.log.get(opened.number) == record
    again = ran(tiny_engine, elsewhere, other, opened.record.board)
    assert [one["token_ids"] for one in again.answers] == [one["token_ids"] for one in record.answers]


def test_a_warm_run_asked_again_with_its_seeds_answers_the_same(tiny_engine, history, session):
    record = ran(tiny_engine, history, session, board((CardValues("Who?", temperature="1", max_new_tokens="20"),)))
    row = questions_again(record)[0]
    assert row["seed"] == record.answers_of("A")[0]["sampling"]["seed"]
    again = board((CardValues("Who?", temperature="1", max_new_tokens="20", seed=str(row["seed"])),))
    assert ran(tiny_engine, history, session, again).answers[0]["token_ids"] == record.answers[0]["token_ids"]


def test_the_switch_is_kept_and_stops_the_keeping(tiny_engine, history, session):
    history.switch(session, False)
    assert not HistoryHandlers(RunLog(history.log.path)).is_on(Session("preset.secrets"))
    list(RunHandlers(tiny_engine, history=history).run(session, BOARD))
    assert history.log.search().total == 0
    history.switch(session, True)
    ran(tiny_engine, history, session)


def test_a_public_page_keeps_nothing_unasked_and_each_tab_for_itself(tiny_engine, tmp_path):
    history = HistoryHandlers(RunLog(tmp_path / "history.sqlite", "history.sqlite"), is_public=True)
    handlers, one, two = RunHandlers(tiny_engine, history=history), Session("p"), Session("p")
    list(handlers.run(one, BOARD))
    assert not (tmp_path / "history.sqlite").exists()
    for state in (one, two):
        history.switch(state, True)
        list(handlers.run(state, BOARD))
    assert history.found(one).total == history.found(two).total == 1
    assert history.owner(one) != history.owner(two)
    history.open(two, history.found(one).rows[0].id)
    assert (two.history.opened, two.history.told) == (None, "history.gone")
    history.leave(one)
    assert history.found(one).total == 0
    assert history.found(two).total == 1


def test_a_history_that_cannot_be_used_stops_no_run(tiny_engine, tmp_path, session):
    (tmp_path / "history.sqlite").write_bytes(b"no database" * 500)
    history = HistoryHandlers(RunLog(tmp_path / "history.sqlite"))
    list(RunHandlers(tiny_engine, history=history).run(session, BOARD))
    assert session.view.cards["A"].answer is not None
    assert session.history.error.reason == "corrupt"
    assert history.found(session).total == 0


def test_two_runs_are_opened_beside_each_other(tiny_engine, history, session):
    for question in ("Who?", "What?"):
        ran(tiny_engine, history, session, board((CardValues(question, max_new_tokens="3"),)))
    newest, oldest = (row.id for row in history.log.search().rows)
    history.open(session, oldest)
    history.compare(session)
    history.open(session, newest)
    view = session.history
    assert (view.beside.number, view.opened.number) == (oldest, newest)
    history.delete(session)
    assert history.log.search().total == 1
    history.clear(session)
    assert history.log.search().total == 0


BAD = [
    ("{", "file"), ("[]", "file"), ('{"format": "other"}', "file"), ("[" * 100_000, "file"),
    ({"version": 2}, "version"), ({"board": {}}, "board"), ({"board": {"cards": [{"id": "ZZ"}]}}, "board"),
    ({"board": None}, "board"), ({"at": "yesterday"}, "at"), ({"questions": [{"id": "A", "colour": 1}]}, "colour"),
    ({"questions": 5}, "questions"), ({"answers": [{"id": "A"}]}, "answers"), ({"answers": ["x"]}, "answers"),
    ({"refused": {"A": 5}}, "refused"), ({"run": []}, "run"), ({"engine": None}, "engine"),
    ({"segments": [{"name": "A", "length": -1, "prompt": 0}]}, "segments"),
    ({"segments": [{"name": "A", "length": 2, "prompt": 1, "parent": 0}]}, "parents[0]"),
    ({"segments": [{"name": "A", "length": True, "prompt": 1}]}, "segments"), ({"audit": "yes"}, "audit"),
]


@pytest.mark.parametrize(("change", "field"), BAD, ids=[f"{field}-{k}" for k, (_, field) in enumerate(BAD)])
def test_a_file_that_is_no_run_is_refused_by_the_name_of_its_key(change, field, history, session):
    text = change if isinstance(change, str) else json.dumps({**json.loads(run_record().to_json()), **change})
    with pytest.raises(InvalidField) as caught:
        from_json(text)
    assert caught.value.field == field
    history.bring(session, "run.json", text)
    assert session.history.opened is None
    assert session.history.error.code == "invalid_field"


def test_the_report_stands_alone_and_shows_everything(tiny_engine, history, session):
    record = ran(tiny_engine, history, session)
    for language in LANGUAGES:
        text = html_report(record, language)
        assert not re.search(r"<script|<link|src=|href=|url\(|@import", text)
        for card in BOARD.cards.values():
            assert card.question in text
        assert say(language, "record.audit") in text
        assert text.count("<svg") == 1


class Reader(HTMLParser):
    """What a browser would see: tags and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text += data


def test_hostile_text_is_text_in_list_detail_comparison_and_report():
    record = run_record(
        HOSTILE,
        board=board((CardValues(HOSTILE, HOSTILE, HOSTILE, system=HOSTILE),), (SharedValues(HOSTILE, HOSTILE),)),
        answers=({"id": "A", "text": HOSTILE, "token_ids": [1], "finish_reason": HOSTILE, "error": HOSTILE,
                  "sampling": {HOSTILE: HOSTILE}},),
        refused={"A": HOSTILE}, engine={"model": HOSTILE}, adapters={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE},
        segments=(Segment(HOSTILE, 3, 2, adapter=HOSTILE),), audit={"isolated": 1, "fault": HOSTILE}, notice=HOSTILE)
    other = run_record("Different")
    shown = [run_detail(record, EN), html_report(record, EN), comparison(record, other, EN),
             comparison(other, record, EN), mask_svg(record, EN)]
    for text in shown:
        reader = Reader()
        reader.feed(text)
        assert not {"img", "script"} & set(reader.tags)
        assert HOSTILE in reader.text
        assert "${" not in text


def test_the_svg_is_the_rule_cell_for_cell():
    parts = (Segment("lore", 3, 3, is_shared=True), Segment("A", 4, 2, parent=0), Segment("B", 5, 5))
    record = run_record(segments=parts)
    drawn = np.zeros((12, 12), dtype=bool)
    for path in re.findall(r'<path fill="[^"]*"[^>]* d="([^"]*)"', mask_svg(record, EN)):
        drawn |= filled(path, 12)
    assert np.array_equal(drawn, mask.dense(pack((3, 4, 5), (None, 0, None))))


def filled(path: str, size: int) -> np.ndarray:
    """The cells inside an outline, by whether their centre is: an even-odd rule of our own."""
    corners, x, y = [], 0.0, 0.0
    for sign, numbers in re.findall(r"([MHVLhvz])([-\d. ]*)", path):
        values = [float(number) for number in numbers.split()]
        if sign in "ML":
            x, y = values
        elif sign in "Hh":
            x = values[0] + (x if sign == "h" else 0)
        elif sign in "Vv":
            y = values[0] + (y if sign == "v" else 0)
        corners.append((x, y))
    cells = np.zeros((size, size), dtype=bool)
    for row in range(size):
        for key in range(size):
            cx, cy, inside = key + 0.5, row + 0.5, False
            for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
                if (ay > cy) != (by > cy) and cx < ax + (cy - ay) * (bx - ax) / (by - ay):
                    inside = not inside
            cells[row, key] = inside
    return cells


def test_a_comparison_shows_only_what_differs():
    left = run_record("Where is it?", board=board((CardValues("Where is it?", seed="7"), CardValues("Same?"))))
    asked = board((CardValues("Where was it?", seed="8"), CardValues("Same?")))
    right = replace(left, board=asked, versions={"torch": "3"})
    text = comparison(left, right, EN)
    assert "<del>is</del>" in text
    assert "<ins>was</ins>" in text
    assert "Same?" not in text
    assert ">torch<" in text
    assert say(ZH, "compare.same") in comparison(left, left, ZH)


def test_the_table_has_a_row_an_answer_and_no_formula_in_it(tiny_engine, history, session):
    record = ran(tiny_engine, history, session)
    rows = list(csv.DictReader(io.StringIO(csv_table(record))))
    assert [(row["id"], row["sample"]) for row in rows] == [("A", "0"), ("B", "0"), ("B", "1"), ("C", "")]
    assert rows[1]["seed"] == str(record.answers_of("B")[0]["sampling"]["seed"])
    assert "hot" in rows[3]["error"]
    evil = run_record(board=board((CardValues("=HYPERLINK(1)"), CardValues("@SUM(1)"), CardValues("-1+1"))))
    assert all(row["question"].startswith("'") for row in csv.DictReader(io.StringIO(csv_table(evil))))


def test_the_list_marks_what_is_open_and_says_when_there_is_nothing(history, session):
    assert say(EN, "history.empty") in run_list(history.found(session), None, False, EN)
    assert say(EN, "history.nothing") in run_list(history.found(session), None, True, EN)
    number = history.log.add(run_record(HOSTILE, board=board((CardValues(HOSTILE),))))
    shown = run_list(history.found(session), number, False, EN)
    assert 'aria-current="true"' in shown
    assert "<img" not in shown


def test_copied_code_holds_the_questions_and_no_shell_gets_out_of_its_quotes(tiny_engine, history, session):
    asked = board((CardValues("It's $(touch /tmp/owned) `id` \" \\ ", temperature="0", max_new_tokens="3"),))
    record = ran(tiny_engine, history, session, asked)
    names: dict[str, object] = {}
    exec(python(record).split("run = ")[0].split("\n\n", 1)[1], names)
    assert names["questions"] == questions_again(record)
    import shlex

    words = shlex.split(curl(record).split(" | sed")[0].removeprefix("event=$("))
    assert json.loads(words[-1])["data"][0] == questions_again(record)


def test_questions_are_those_that_the_page_parsed(tiny_engine, history, session):
    record = ran(tiny_engine, history, session)
    parsed = parse_all(record.board, tiny_engine.adapters.names())
    assert [question.to_json() for question in parsed.questions] == list(record.questions)
