"""A questions file: what `ask` and `audit` read on the command line, and what the page's API takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kev_engine.errors import InvalidField, KevError, UnreadableFile
from kev_engine.schema import QUESTION_KEYS, Answer, Question, Run, RunStats, SamplingParams, SharedContext

if TYPE_CHECKING:
    from kev_engine.runtime.engine import Engine


@dataclass(frozen=True)
class QuestionsFile:
    """The questions in the order of the file; `refused` are those whose values cannot be used, by id."""

    ids: tuple[str, ...]
    questions: tuple[Question, ...]
    shared: tuple[SharedContext, ...]
    refused: Mapping[str, KevError]


def read_questions(path: str) -> QuestionsFile:
    """The file's questions: a list of them, or an object with `questions` and `shared`.

    A question with a wrong value is refused by itself. Raises UnreadableFile for a file that is not of this form:
    no JSON, an unknown key, a missing or repeated id.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, "the file", f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UnreadableFile(path, "the file", "it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UnreadableFile(path, where, f"it is not JSON: {error.msg}") from None
    return parse_questions(path, content)


def parse_questions(path: str, content: object) -> QuestionsFile:
    """The questions of a file's content, as `read_questions`; errors call it `path`."""
    if isinstance(content, list):
        content = {"questions": content}
    if not isinstance(content, dict):
        raise UnreadableFile(path, "the file", "it must hold a list of questions, or an object with questions")
    for key in content:
        if key not in ("questions", "shared"):
            raise UnreadableFile(path, f"key {key!r}", "known keys are questions and shared")
    rows = content.get("questions")
    if not isinstance(rows, list) or not rows:
        raise UnreadableFile(path, "questions", "it must be a list of at least one question")
    shared = _read_shared(path, content.get("shared") or {})
    ids: list[str] = []
    questions, refused = [], {}
    for index, row in enumerate(rows):
        where = f"questions[{index}]"
        if not isinstance(row, dict):
            raise UnreadableFile(path, where, "each question must be a JSON object")
        question_id = row.get("id")
        if not isinstance(question_id, str) or not question_id:
            raise UnreadableFile(path, f"{where}.id", "each question needs a text id")
        if question_id in ids:
            raise UnreadableFile(path, f"{where}.id", f"{question_id!r} appears twice; each must be its own")
        unknown = [key for key in row if key not in QUESTION_KEYS]
        if unknown:
            raise UnreadableFile(path, f"{where}.{unknown[0]}", f"known keys are {', '.join(QUESTION_KEYS)}")
        ids.append(question_id)
        try:
            questions.append(Question.from_json(row))
        except InvalidField as error:
            refused[question_id] = error
    return QuestionsFile(tuple(ids), tuple(questions), shared, refused)


def ask_file(engine: Engine, file: QuestionsFile) -> Run:
    """The answers in the order of the file, refused questions among them with their sentence, and the run's figures."""
    info = engine.info
    answered = engine.ask(file.questions, file.shared) if file.questions else None
    answers = [_refused(question_id, error) for question_id, error in file.refused.items()]
    answers += answered.answers if answered is not None else ()
    answers.sort(key=lambda answer: file.ids.index(answer.question_id))
    stats = answered.stats if answered is not None else RunStats(info.model, info.backend, info.dtype, info.kv_dtype)
    return Run(tuple(answers), stats)


def run_json(run: Run) -> dict[str, object]:
    """The run as the command line prints it."""
    return {"answers": [answer.to_json() for answer in run.answers], "run": run.stats.to_json()}


def _refused(question_id: str, error: KevError) -> Answer:
    return Answer(question_id, "", (), "error", SamplingParams(), 0, 0, 0, error=str(error))


def _read_shared(path: str, content: object) -> tuple[SharedContext, ...]:
    if not isinstance(content, dict):
        raise UnreadableFile(path, "shared", "it must be an object of name: text")
    contexts = []
    for name, value in content.items():
        value = {"text": value} if isinstance(value, str) else value
        where = f"shared.{name}"
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            raise UnreadableFile(path, where, 'it must be text, or {"text": text, "system": text or null}')
        unknown = [key for key in value if key not in ("text", "system")]
        system = value.get("system")
        if unknown or not (system is None or isinstance(system, str)):
            raise UnreadableFile(path, f"{where}.{(unknown or ['system'])[0]}", "known keys are text and system")
        contexts.append(SharedContext(name, value["text"], system))
    return tuple(contexts)
