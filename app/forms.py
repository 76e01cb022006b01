"""Form values -> Question. A mistake names its field, as an InputError that the card shows as one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.board import DEFAULT_MAX_NEW_TOKENS, Board, CardValues, SharedValues, owner
from kev_engine import InputError, Question, SamplingParams, SharedContext
from kev_engine.errors import InvalidField, TooManyQuestions, UnknownAdapter


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask at once; None: as much as the engine takes. `samples` counts n of all questions."""

    questions: int | None = None
    characters: int | None = None
    new_tokens: int | None = None
    samples: int | None = None


LOCAL = Limits()
PUBLIC = Limits(questions=8, characters=20_000, new_tokens=256, samples=32)


class TextOverLimit(InputError):
    """A text is longer than this public page takes."""

    code = "limit_text"


class TokensOverLimit(InputError):
    """More new tokens were asked for than this public page gives."""

    code = "limit_tokens"


class SamplesOverLimit(InputError):
    """More samples were asked for than this public page gives."""

    code = "limit_samples"


@dataclass(frozen=True)
class Parsed:
    """The questions that can run with the contexts they share, and the mistakes of those that cannot, by card."""

    questions: tuple[Question, ...]
    mistakes: Mapping[str, InputError]
    shared: tuple[SharedContext, ...] = ()


def parse_all(board: Board, adapters: Sequence[str], limits: Limits = LOCAL) -> Parsed:
    """Every card by itself: one with a mistake takes nothing from the others."""
    questions: list[Question] = []
    mistakes: dict[str, InputError] = {}
    samples = 0
    for letter, card in board.cards.items():
        try:
            if limits.questions is not None and len(questions) >= limits.questions:
                raise TooManyQuestions(len(board.cards), limits.questions)
            question = parse(letter, card, adapters, limits, board.shared)
            samples += question.n
            if limits.samples is not None and samples > limits.samples:
                message = f"the run has {samples} samples but at most {limits.samples} are allowed."
                raise SamplesOverLimit(message, field="n", value=samples, limit=limits.samples)
            questions.append(question)
        except InputError as error:
            mistakes[letter] = error
    named = {question.shared for question in questions}
    shared = tuple(SharedContext(one.name.strip(), one.text, one.system or None) for one in board.shared
                   if one.name.strip() in named)
    return Parsed(tuple(questions), mistakes, shared)


def parse(
    question_id: str, card: CardValues, adapters: Sequence[str], limits: Limits = LOCAL,
    shared: Sequence[SharedValues] = (),
) -> Question:
    """The question that a card describes.

    Raises InvalidField, UnknownAdapter, TextOverLimit or TokensOverLimit, the first mistake in the order of the fields.
    """
    if not card.question.strip():
        raise InvalidField("question", card.question, "it must hold some text", question_id)
    for name in ("question", "context", "system"):
        _require_short(name, getattr(card, name), limits)
    adapter = card.adapter.strip() or None
    if adapter is not None and adapter not in adapters:
        raise UnknownAdapter(adapter, adapters, question_id)
    given: dict[str, Any] = {name: _number(name, getattr(card, name), question_id) for name in _NUMBERS}
    max_new_tokens, n, draft = (given.pop(name) for name in ("max_new_tokens", "n", "draft"))
    if limits.new_tokens is not None and (max_new_tokens or 0) > limits.new_tokens:
        message = f"max_new_tokens is {max_new_tokens} but at most {limits.new_tokens} are allowed."
        raise TokensOverLimit(message, field="max_new_tokens", value=max_new_tokens, limit=limits.new_tokens)
    if card.order.strip():
        given["order"] = tuple(step.strip() for step in card.order.split(","))
    return Question(
        id=question_id, question=card.question, context=card.context, system=card.system or None, adapter=adapter,
        shared=_shared(card.shared.strip(), shared, limits, question_id),
        sampling=SamplingParams(**{name: value for name, value in given.items() if value is not None}),
        max_new_tokens=DEFAULT_MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
        n=1 if n is None else n, draft=0 if draft is None else draft, stop=_lines(card.stop),
        json_schema=_schema(card.json_schema, question_id), regex=card.regex.strip() or None,
        choices=_lines(card.choices) or None, ignore_eos=bool(card.ignore_eos),
    )


def _shared(name: str, shared: Sequence[SharedValues], limits: Limits, question_id: str) -> str | None:
    """The name of the question's shared context, which must be on the board once and hold some text."""
    if not name:
        return None
    found = [one for one in shared if one.name.strip() == name]
    if not found:
        known = ", ".join(one.name for one in shared) or "none"
        raise InvalidField("shared", name, f"no shared context has this name; there are: {known}", question_id)
    if len(found) > 1:
        raise InvalidField("shared", name, "two shared contexts have this name; rename one", question_id)
    if owner(name):
        raise InvalidField("shared", name, "a question has this letter; give the context another name", question_id)
    if not found[0].text.strip():
        raise InvalidField("shared", name, "this shared context is empty; write something into it", question_id)
    for text in (found[0].text, found[0].system):
        _require_short("shared", text, limits)
    return name


def _require_short(name: str, text: str, limits: Limits) -> None:
    if limits.characters is not None and len(text) > limits.characters:
        message = f"{name} has {len(text)} characters but at most {limits.characters} are allowed; shorten it."
        raise TextOverLimit(message, field=name, value=len(text), limit=limits.characters)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def _lines(text: str) -> tuple[str, ...]:
    """The lines that are not empty; `\\n`, `\\r`, `\\t` and `\\\\` in one stand for what no line can hold."""
    return tuple(re.sub(r"\\([nrt\\])", lambda found: _ESCAPES[found[1]], line) for line in text.split("\n") if line)


def _joined(texts: Sequence[str] | None) -> str:
    """One text a line, as `_lines` reads them."""
    signs = {sign: f"\\{letter}" for letter, sign in _ESCAPES.items()}
    return "\n".join("".join(signs.get(sign, sign) for sign in text) for text in texts or ())


def card_of(question: Question, expected: str = "") -> CardValues:
    """The card that describes this question, so that `parse` gives it back (under the card's letter).

    Raises InvalidField for a question that no card can hold: one of messages or token ids.
    """
    for name in ("messages", "prompt_token_ids"):
        if getattr(question, name) is not None:
            raise InvalidField(name, getattr(question, name), "a card holds a question in words", question.id)
    params, plain = question.sampling, SamplingParams()
    numbers = {name: str(getattr(params, name)).removesuffix(".0") for name in _NUMBERS
               if hasattr(params, name) and getattr(params, name) != getattr(plain, name)}
    return CardValues(
        question=question.question or "", context=question.context, adapter=question.adapter or "",
        max_new_tokens=str(question.max_new_tokens), system=question.system or "", shared=question.shared or "",
        order="" if params.order == plain.order else ",".join(params.order), stop=_joined(question.stop),
        n="" if question.n == 1 else str(question.n), draft="" if question.draft == 0 else str(question.draft),
        json_schema="" if question.json_schema is None else json.dumps(question.json_schema, ensure_ascii=False),
        regex=question.regex or "", choices=_joined(question.choices), ignore_eos="1" if question.ignore_eos else "",
        expected=expected, **numbers,
    )


def _schema(text: str, question_id: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise InvalidField("json_schema", text, "it must be a JSON object", question_id)
    return schema


_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "temperature": float, "max_new_tokens": int, "seed": int, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float, "presence_penalty": float, "frequency_penalty": float, "n": int, "draft": int,
}


def _number(name: str, text: str, question_id: str | None = None) -> float | int | None:
    """The number in a field, None where the field is empty; the schema checks the range."""
    text = str(text).strip()
    if not text:
        return None
    kind = _NUMBERS[name]
    try:
        return kind(text)
    except ValueError:
        what = "a number" if kind is float else "a whole number"
        raise InvalidField(name, text, f"it must be {what}", question_id) from None


def number(name: str, text: str) -> float:
    """The number in a field that must not be empty."""
    found = _number(name, text)
    if found is None:
        raise InvalidField(name, text, "it must be a number")
    return found
