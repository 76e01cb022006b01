"""Two kept runs side by side: only what differs, word by word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from app.board import FIELDS
from app.i18n import CATALOGUE, say, spoken
from app.render.history import line, sampling, when
from app.render.text import escape

if TYPE_CHECKING:
    from app.run_record import RunRecord

Json = Mapping[str, Any]
ENGINE = ("model", "digest", "backend", "dtype", "kv_dtype", "device", "threads", "block_size")
MAX_WORDS = 4000
"""Longer texts are shown whole, without marks: their comparison would take seconds."""
LONG = 1500
"""A cell of more characters of HTML scrolls."""
_WORDS = re.compile(r"\s+|\d+(?:\.\d+)*|\w+|[^\w\s]")


def comparison(left: RunRecord, right: RunRecord, language: str) -> str:
    """A table of the questions, settings and answers in which the two runs differ."""
    title = say(language, "compare.title", left=when(left.at), right=when(right.at))
    sections = []
    for letter in dict.fromkeys((*left.board.cards, *right.board.cards)):
        rows = _question(left, right, letter, language)
        if rows:
            sections.append((letter, rows))
    engine = [(name, *pair) for name in ENGINE
              if (pair := (str(left.engine.get(name, "—")), str(right.engine.get(name, "—"))))[0] != pair[1]]
    engine += [(name, *pair) for name in dict.fromkeys((*left.versions, *right.versions))
               if (pair := (left.versions.get(name, "—"), right.versions.get(name, "—")))[0] != pair[1]]
    engine += [(name, *pair) for name in dict.fromkeys((*left.adapters, *right.adapters))
               if (pair := (left.adapters.get(name, "—"), right.adapters.get(name, "—")))[0] != pair[1]]
    told = line(say(language, "compare.only" if sections or engine else "compare.same"))
    if engine:
        sections.append((say(language, "compare.settings"), engine))
    sections.append((say(language, "compare.times"), _times(left, right, language)))
    body = "".join(_section(name, rows) for name, rows in sections)
    head = f'<thead><tr><td></td><th scope="col">{when(left.at)}</th><th scope="col">{when(right.at)}</th></tr></thead>'
    return (f'<article class="record"><h2>{escape(title)}</h2>{told}'
            f'<table class="compare">{head}{body}</table></article>')


def _question(left: RunRecord, right: RunRecord, letter: str, language: str) -> list[tuple[str, str, str]]:
    """The fields and answers of one question that differ."""
    cards = [record.board.cards.get(letter) for record in (left, right)]
    missing = say(language, "compare.missing")
    if None in cards:
        return [(_field("question", language), *(missing if card is None else card.question for card in cards))]
    rows = []
    for name in FIELDS:
        pair = [str(getattr(card, name)) for card in cards]
        if pair[0] != pair[1]:
            rows.append((_field(name, language), pair[0], pair[1]))
    answers = [record.answers_of(letter) for record in (left, right)]
    refused = [spoken(record.refused.get(letter, ""), language) for record in (left, right)]
    for number in range(max(1, *map(len, answers))):
        both = [found[number] if number < len(found) else None for found in answers]
        texts = [refusal if answer is None else answer["text"]
                 for answer, refusal in zip(both, refused, strict=True)]
        name = say(language, "compare.answer") + (f" {number}" if number else "")
        if texts[0] != texts[1]:
            rows.append((name, *texts))
        drawn = _drawn(*both)
        if drawn[0] != drawn[1]:
            rows.append((say(language, "record.drawn"), *drawn))
    return rows


def _drawn(left: Json | None, right: Json | None) -> tuple[str, str]:
    """The parts of both sampling tuples that differ; where one answer is missing, the whole of the other."""
    values = [answer["sampling"] if answer is not None else None for answer in (left, right)]
    if values[0] is not None and values[1] is not None:
        same = {name for name in values[0] if name in values[1] and values[0][name] == values[1][name]}
        values = [{name: value for name, value in one.items() if name not in same} for one in values if one is not None]
    return tuple("—" if one is None else sampling({"sampling": one}) for one in values)  # type: ignore[return-value]


def _times(left: RunRecord, right: RunRecord, language: str) -> list[tuple[str, str, str]]:
    rows = []
    pair = [_number(record.run, "seconds") for record in (left, right)]
    rows.append((say(language, "record.time"), *(f"{value} s" for value in pair)))
    for letter in (letter for letter in left.board.cards if letter in right.board.cards):
        found = [(record.answers_of(letter) or [{}])[0] for record in (left, right)]
        rows.append((letter, *(f"TTFT {_number(answer, 'ttft_ms')} ms · TPOT {_number(answer, 'tpot_ms')} ms"
                               for answer in found)))
    return rows


def _number(values: Json, key: str) -> str:
    value = values.get(key)
    return f"{value:.1f}" if isinstance(value, (int, float)) else "—"


def _field(name: str, language: str) -> str:
    return say(language, f"field.{name}") if f"field.{name}" in CATALOGUE else name


def _section(name: str, rows: list[tuple[str, str, str]]) -> str:
    body = "".join(f'<tr><th scope="row">{escape(label)}</th>{_pair(left, right)}</tr>' for label, left, right in rows)
    return f'<tbody><tr class="name"><th colspan="3" scope="rowgroup">{escape(name)}</th></tr>{body}</tbody>'


def _pair(left: str, right: str) -> str:
    """Both cells, the words that the other lacks marked."""
    words = _WORDS.findall(left), _WORDS.findall(right)
    if max(map(len, words)) > MAX_WORDS:
        return _cell(escape(left)) + _cell(escape(right))
    cells: tuple[list[str], list[str]] = ([], [])
    for what, start, end, other, other_end in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for cell, part, mark in ((cells[0], words[0][start:end], "del"), (cells[1], words[1][other:other_end], "ins")):
            text = escape("".join(part))
            cell.append(text if what == "equal" or not text else f"<{mark}>{text}</{mark}>")
    return "".join(_cell("".join(cell)) for cell in cells)


def _cell(text: str) -> str:
    """A cell that scrolls where a long context would make it pages high, and takes the focus for that."""
    return f"<td>{text}</td>" if len(text) < LONG else f'<td><div class="long" tabindex="0">{text}</div></td>'
