"""RunRecord: one run as it is kept, exported and read again: what was asked, with what, and what came of it.

The JSON form has `format` "kev-run" and `version` 1; `from_json` reads what `to_json` wrote and refuses everything
else by the name of the key.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from app import board as boards
from app.board import Board
from kev_engine import Question, pack
from kev_engine.errors import InvalidField

if TYPE_CHECKING:
    from app.forms import Parsed
    from app.run_view import RunView
    from kev_engine import PackedLayout
    from kev_engine.runtime.engine import EngineInfo

FORMAT, VERSION = "kev-run", 1
MAX_CHARACTERS = 20_000_000
PACKAGES = ("torch", "transformers", "gradio", "numpy")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Segment:
    """One segment of the story when the run ended: `prompt` of its `length` tokens were asked, the rest generated."""

    name: str
    length: int
    prompt: int
    parent: int | None = None
    is_shared: bool = False
    adapter: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """A run. `at` is UTC in ISO form; `questions` are as the command line reads them, `answers` as it prints them.

    `refused` holds the sentence of each question that had no answer, `notice` that of a run which the engine ended.
    """

    at: str
    board: Board
    questions: tuple[Json, ...]
    shared: Json
    answers: tuple[Json, ...]
    refused: Mapping[str, str]
    run: Json
    engine: Json
    adapters: Mapping[str, str]
    versions: Mapping[str, str]
    segments: tuple[Segment, ...] = ()
    audit: Json | None = None
    notice: str | None = None

    @property
    def layout(self) -> PackedLayout:
        """The story as it was packed, generated tokens behind their prompts."""
        return pack([part.length for part in self.segments], [part.parent for part in self.segments])

    @property
    def search_text(self) -> str:
        """Everything a person may search for, in one case."""
        texts = [str(self.engine.get("model", "")), *self.adapters]
        for card in self.board.cards.values():
            texts += [card.question, card.context, card.system, card.adapter]
        texts += [part for one in self.board.shared for part in (one.name, one.text)]
        texts += [str(answer.get("text", "")) for answer in self.answers]
        return "\n".join(text for text in texts if text).casefold()

    def answers_of(self, letter: str) -> list[Json]:
        """The answers of one card, in the order of their samples, those of a sweep by temperature."""
        return [answer for answer in self.answers if letter in (answer.get("id"), boards.owner(str(answer.get("id"))))]

    def with_audit(self, audit: Json) -> RunRecord:
        return replace(self, audit=audit)

    def to_json(self) -> str:
        """The record as a file."""
        return json.dumps({
            "format": FORMAT, "version": VERSION, "at": self.at, "board": json.loads(boards.to_json(self.board)),
            "questions": list(self.questions), "shared": dict(self.shared), "answers": list(self.answers),
            "refused": dict(self.refused), "run": dict(self.run), "engine": dict(self.engine),
            "adapters": dict(self.adapters), "versions": dict(self.versions),
            "segments": [vars(part) for part in self.segments], "audit": self.audit, "notice": self.notice,
        }, ensure_ascii=False, indent=1)


def record(board: Board, parsed: Parsed, view: RunView, info: EngineInfo, at: datetime | None = None) -> RunRecord:
    """The record of a run that has ended, on the engine that `info` described when it began."""
    cards = view.current
    # The page asks for the probabilities of all tokens to show them; kept, they would be most of the file.
    answers = [replace(sample.answer, logprobs=(), alternatives=())
               for card in cards.values() for sample in card.samples if sample.answer is not None]
    return RunRecord(
        at=(at or datetime.now(UTC)).isoformat(timespec="seconds"), board=board,
        questions=tuple(question.to_json() for question in parsed.questions),
        shared={one.name: {"text": one.text, "system": one.system} for one in parsed.shared},
        answers=tuple(answer.to_json() for answer in answers),
        refused={name: str(card.error) for name, card in cards.items() if card.error is not None},
        run={} if view.run is None else view.run.stats.to_json(),
        engine={
            "model": info.model, "digest": info.digest, "backend": info.backend, "dtype": info.dtype,
            "kv_dtype": info.kv_dtype, "device": info.device, "threads": info.threads,
            "bytes_per_token": info.bytes_per_token, "block_size": info.block_size,
        },
        adapters={answer.adapter: answer.adapter_version or "" for answer in answers if answer.adapter},
        versions=versions(),
        segments=_segments(view), notice=None if view.notice is None else str(view.notice),
    )


def _segments(view: RunView) -> tuple[Segment, ...]:
    layout = view.layout
    if view.plan is None or layout is None:
        return ()
    return tuple(
        Segment(info.name, length, view.plan.layout.lengths[index], parent, info.is_shared, info.adapter)
        for index, (info, length, parent) in enumerate(
            zip(view.plan.segments, layout.lengths, layout.parents, strict=True))
    )


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions that a run depends on, by name."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def from_json(text: str) -> RunRecord:
    """The record in a file. Raises InvalidField naming the key that cannot be used."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidField("file", text[:40], f"at most {MAX_CHARACTERS:,} characters are read")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidField("file", text[:40], "it must be the JSON that the history exports") from None
    if not isinstance(row, dict) or row.get("format") != FORMAT:
        raise InvalidField("file", text[:40], f'it must be the JSON that the history exports, with format "{FORMAT}"')
    if row.get("version") != VERSION:
        raise InvalidField("version", row.get("version"), f"this workbench reads version {VERSION}")
    board = boards.from_json(json.dumps(row.get("board")))
    if not board.cards:
        raise InvalidField("board", row.get("board"), "it must hold at least one card")
    return RunRecord(
        at=_time(row.get("at")), board=board, questions=_read_questions(row), shared=_object(row, "shared"),
        answers=_read_answers(row), refused=_texts(row, "refused"), run=_object(row, "run"),
        engine=_object(row, "engine"), adapters=_texts(row, "adapters"), versions=_texts(row, "versions"),
        segments=_read_segments(_objects(row, "segments")),
        audit=None if row.get("audit") is None else _object(row, "audit"),
        notice=None if row.get("notice") is None else str(row["notice"]),
    )


def _time(value: object) -> str:
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        raise InvalidField("at", value, "it must be a time in ISO form") from None


def _object(row: Json, key: str) -> Json:
    value = row.get(key)
    if not isinstance(value, dict):
        raise InvalidField(key, value, "it must be an object")
    return value


def _texts(row: Json, key: str) -> Mapping[str, str]:
    value = _object(row, key)
    if not all(isinstance(text, str) for text in value.values()):
        raise InvalidField(key, value, "its values must be text")
    return value


def _objects(row: Json, key: str) -> tuple[Json, ...]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidField(key, value, "it must be a list of objects")
    return tuple(value)


def _read_questions(row: Json) -> tuple[Json, ...]:
    questions = _objects(row, "questions")
    for question in questions:
        Question.from_json(question)
    return questions


def _read_answers(row: Json) -> tuple[Json, ...]:
    answers = _objects(row, "answers")
    for answer in answers:
        for key, kind in (("id", str), ("text", str), ("token_ids", list), ("sampling", dict)):
            if not isinstance(answer.get(key), kind):
                raise InvalidField("answers", answer, f"each has its {key}, as the command line prints it")
    return answers


def _read_segments(rows: Sequence[Json]) -> tuple[Segment, ...]:
    found = []
    for row in rows:
        name, adapter, parent = row.get("name"), row.get("adapter"), row.get("parent")
        counts = [row.get("length"), row.get("prompt")]
        if (not isinstance(name, str) or not (adapter is None or isinstance(adapter, str))
                or not all(type(count) is int and 0 <= count <= 2**31 for count in counts)
                or not (parent is None or type(parent) is int)):
            raise InvalidField("segments", row, "each needs a name, a length, a prompt and a parent")
        found.append(Segment(name, counts[0], counts[1], parent, bool(row.get("is_shared")), adapter))
    pack([part.length for part in found], [part.parent for part in found])
    return tuple(found)
