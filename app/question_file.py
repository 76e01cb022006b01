"""Questions out of a file that a person chose: JSON, JSONL or CSV. A wrong row is named, and the rest loads.

    read("questions.csv", text).board         the rows that can be asked, as cards
    read("questions.csv", text).mistakes      where each other row stands, and what is wrong with it

JSON is what the command line reads (a list of questions, or an object with `questions` and `shared`), JSONL one
question a line. CSV has a header that names fields of a question; a list in a cell is written as JSON. `expected` may
stand beside a question's own fields.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.board import CARD_IDS, FIELDS, Board, CardValues, SharedValues, board
from app.forms import card_of, parse
from kev_engine import InputError, KevError, Question
from kev_engine.errors import InvalidField, TooManyQuestions, UnreadableFile

Row = tuple[str, Mapping[str, Any] | KevError]
"""Where a row stands, and what is in it."""


@dataclass(frozen=True)
class QuestionFile:
    """What a file held: the cards in its order, and the rows that could not be read, each with its place."""

    board: Board
    mistakes: tuple[tuple[str, KevError], ...]


def read(name: str, text: str) -> QuestionFile:
    """The questions of a file of this name.

    Raises UnreadableFile where the file as a whole is none of the three formats, and for one without a question.
    """
    text = text.removeprefix("\ufeff")
    shared: tuple[SharedValues, ...] = ()
    kind = name.rpartition(".")[2].lower()
    if kind == "csv":
        rows = _csv_rows(name, text)
    elif kind == "jsonl":
        rows = _jsonl_rows(name, text)
    elif kind == "json":
        content = _json(name, text)
        shared = _shared(name, content.get("shared") or {})
        rows = _json_rows(name, content)
    else:
        raise UnreadableFile(name, "the file", "it must be a .json, .jsonl or .csv file")
    cards: list[CardValues] = []
    mistakes: list[tuple[str, KevError]] = []
    for where, row in rows:
        try:
            if isinstance(row, KevError):
                raise row
            if len(cards) == len(CARD_IDS):
                raise TooManyQuestions(len(cards) + 1, len(CARD_IDS))
            cards.append(_card(row, kind, shared))
        except InputError as error:
            mistakes.append((where, error))
    if not cards and not mistakes:
        raise UnreadableFile(name, "the file", "it holds no question")
    return QuestionFile(board(tuple(cards), shared), tuple(mistakes))


def _card(row: Mapping[str, Any], kind: str, shared: tuple[SharedValues, ...]) -> CardValues:
    expected = str(row.get("expected") or "")
    rest = {key: value for key, value in row.items() if key != "expected"}
    if kind != "csv":
        return card_of(Question.from_json({"id": "row", **rest}), expected)
    unknown = [key for key in rest if key not in (*FIELDS, "id")]
    if unknown:
        raise InvalidField(unknown[0], rest[unknown[0]], f"a question has no such key; known: {', '.join(FIELDS)}")
    card = CardValues(**{key: value for key, value in rest.items() if key in FIELDS and value}, expected=expected)
    # What a card would refuse at the run is told now; an adapter may still be loaded.
    question = parse("row", replace(_listed(card), shared=""), [card.adapter.strip()])
    return replace(card_of(question, expected), shared=card.shared.strip())


def _listed(card: CardValues) -> CardValues:
    """A CSV cell holds a list as JSON; a card holds it one text a line."""
    lists = {}
    for name in ("stop", "choices"):
        text = getattr(card, name).strip()
        if text.startswith("["):
            question = Question.from_json({"id": "row", "question": "?", name: _loads(name, text)})
            lists[name] = getattr(card_of(question), name)
    return replace(card, **lists)


def _loads(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidField(name, text, "a list in a cell is written as JSON") from None


def _json(name: str, text: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UnreadableFile(name, where, f"it is not JSON: {error.msg}") from None
    except RecursionError:
        raise UnreadableFile(name, "the file", "it is nested too deeply") from None
    content = {"questions": content} if isinstance(content, list) else content
    if not isinstance(content, dict) or not isinstance(content.get("questions"), list):
        raise UnreadableFile(name, "the file", "it must hold a list of questions, or an object with questions")
    return content


def _json_rows(name: str, content: Mapping[str, Any]) -> Iterator[Row]:
    for index, row in enumerate(content["questions"]):
        where = f"questions[{index}]"
        yield where, row if isinstance(row, dict) else UnreadableFile(name, where, "it must be a JSON object")


def _jsonl_rows(name: str, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        where = f"line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        yield where, row if isinstance(row, dict) else UnreadableFile(name, where, "it must be a JSON object")


def _csv_rows(name: str, text: str) -> Iterator[Row]:
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [cell.strip() for cell in next(lines, [])]
    except csv.Error:
        header = []
    if "question" not in header or len(set(header)) < len(header):
        raise UnreadableFile(name, "line 1", "the header must name the columns, each once, and one of them question")
    while True:
        where = f"line {lines.line_num + 1}"
        try:
            cells = next(lines, None)
        except csv.Error as error:
            yield where, UnreadableFile(name, where, f"it is not CSV: {error}")
            continue
        if cells is None:
            return
        if len(cells) == len(header):
            yield where, dict(zip(header, cells, strict=True))
        elif any(cell.strip() for cell in cells):
            way_out = f"it has {len(cells)} cells and the header {len(header)}"
            yield where, UnreadableFile(name, where, way_out)


def _shared(name: str, content: object) -> tuple[SharedValues, ...]:
    if not isinstance(content, dict):
        raise UnreadableFile(name, "shared", "it must be an object of name: text")
    found = []
    for key, value in content.items():
        value = {"text": value} if isinstance(value, str) else value
        texts = [value.get("text"), value.get("system") or ""] if isinstance(value, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise UnreadableFile(name, f"shared.{key}", 'it must be text, or {"text": text, "system": text or null}')
        found.append(SharedValues(key, *texts))
    return tuple(found)
