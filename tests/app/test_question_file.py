"""Questions out of files: a wrong row is named by its place, and the rest loads."""

from __future__ import annotations

import json

import pytest

from app import render
from app.board import CARD_IDS
from app.i18n import EN, LANGUAGES, sentence
from app.question_file import read
from kev_engine.errors import UnreadableFile

ROWS = [{"id": "q1", "question": "Who?", "context": "They.", "temperature": 1.0, "seed": 3, "stop": ["a", "b"]},
        {"id": "q2", "question": "Where?", "adapter": "pirate", "max_new_tokens": 9, "expected": "here"}]


def test_json_jsonl_and_csv_hold_the_same_cards():
    as_list = read("a.json", json.dumps(ROWS))
    as_object = read("a.JSON", json.dumps({"questions": ROWS, "shared": {"terms": "x", "more": {"text": "y"}}}))
    as_lines = read("a.jsonl", "\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    as_csv = read("a.csv", "id,question,context,temperature,seed,stop,adapter,max_new_tokens,expected\r\n"
                  'q1,Who?,They.,1,3,"[""a"", ""b""]",,64,\r\nq2,Where?,,,,,pirate,9,here\r\n')
    assert as_list.board.cards == as_object.board.cards == as_lines.board.cards == as_csv.board.cards
    assert [one.name for one in as_object.board.shared] == ["terms", "more"]
    first, second = as_list.board.cards.values()
    assert (first.question, first.temperature, first.stop) == ("Who?", "1", "a\nb")
    assert (second.adapter, second.max_new_tokens, second.expected) == ("pirate", "9", "here")
    assert not as_list.mistakes + as_csv.mistakes


@pytest.mark.parametrize(("name", "text", "places"), [
    ("a.json", json.dumps([ROWS[0], 7, {"id": "x", "question": "Who?", "temperatur": 1}, {"id": "y", "question": ""},
                           {"id": "z", "messages": [{"role": "user", "content": "Hi"}]}, ROWS[1]]),
     ["questions[1]", "questions[2]", "questions[3]", "questions[4]"]),
    ("a.jsonl", f'{json.dumps(ROWS[0])}\n{{"question"\n\n{json.dumps(ROWS[1])}\n[1]', ["line 2", "line 5"]),
    ("a.csv", 'question;temperature\nWho?;0.5\nWhere?;hot\n\nWhat?;1;2\n"two\nlines";0\n"un"quoted;1\nWhy?;0,5\nNow?;0',
     ["line 3", "line 5", "line 8", "line 9"]),
])
def test_a_wrong_row_is_named_and_the_rest_loads(name, text, places):
    found = read(name, text)
    assert [where for where, _ in found.mistakes] == places
    assert len(found.board.cards) >= 2
    assert all(render.imported(found, EN).count(where) == 1 for where in places)
    for _, error in found.mistakes:
        assert all(sentence(error, language) for language in LANGUAGES)


def test_more_rows_than_cards_are_named():
    found = read("a.jsonl", "\n".join(['{"question": "Who?"}'] * 40))
    assert tuple(found.board.cards) == CARD_IDS
    assert [where for where, _ in found.mistakes] == [f"line {number}" for number in range(33, 41)]


@pytest.mark.parametrize(("name", "text"), [
    ("a.txt", "Who?"), ("a.json", "{"), ("a.json", "3"), ("a.json", '{"questions": {}}'), ("a.json", "[" * 100_000),
    ("a.json", '{"questions": [], "shared": {"x": 1}}'), ("a.json", "[]"), ("a.jsonl", "\n"), ("a.csv", ""),
    ("a.csv", "text\nWho?"), ("a.csv", "question,question\na,b"), ("a.csv", '"question'), ("a.csv", "question\n"),
])
def test_a_file_of_no_known_form_is_one_sentence(name, text):
    with pytest.raises(UnreadableFile):
        read(name, text)
