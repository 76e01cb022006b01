"""Form values -> Question. A mistake names its field, as an InputError that the card shows as one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from string import ascii_uppercase
from typing import Any

from kev_engine import InputError, Question, SamplingParams
from kev_engine.errors import InvalidField, TooManyQuestions, UnknownAdapter

DEFAULT_MAX_NEW_TOKENS = 64
POOL_SIZE = 8
CARD_IDS = tuple(ascii_uppercase[:POOL_SIZE])
"""The id of the question in each card of the pool; it is also its letter on the page."""


@dataclass(frozen=True)
class CardValues:
    """What stands in the fields of one card, as text; empty means the default (`adapter` empty: the base model)."""

    question: str = ""
    context: str = ""
    adapter: str = ""
    temperature: str = ""
    max_new_tokens: str = str(DEFAULT_MAX_NEW_TOKENS)
    seed: str = ""
    system: str = ""
    top_k: str = ""
    top_p: str = ""
    min_p: str = ""
    repetition_penalty: str = ""


FIELDS = tuple(item.name for item in fields(CardValues))


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask at once; None: as much as the engine takes."""

    questions: int | None = None
    characters: int | None = None
    new_tokens: int | None = None


LOCAL = Limits()
PUBLIC = Limits(questions=8, characters=20_000, new_tokens=256)


class TextOverLimit(InputError):
    """A text is longer than this public page takes."""

    code = "limit_text"


class TokensOverLimit(InputError):
    """More new tokens were asked for than this public page gives."""

    code = "limit_tokens"


def parse(question_id: str, card: CardValues, adapters: Sequence[str], limits: Limits = LOCAL) -> Question:
    """The question that a card describes.

    Raises InvalidField, UnknownAdapter, TextOverLimit or TokensOverLimit, the first mistake in the order of the fields.
    """
    if not card.question.strip():
        raise InvalidField("question", card.question, "it must hold some text", question_id)
    for name in ("question", "context", "system"):
        size = len(getattr(card, name))
        if limits.characters is not None and size > limits.characters:
            message = f"{name} has {size} characters but at most {limits.characters} are allowed; shorten it."
            raise TextOverLimit(message, field=name, value=size, limit=limits.characters)
    adapter = card.adapter.strip() or None
    if adapter is not None and adapter not in adapters:
        raise UnknownAdapter(adapter, adapters, question_id)
    given: dict[str, Any] = {name: _number(name, getattr(card, name), question_id) for name in _NUMBERS}
    max_new_tokens = given.pop("max_new_tokens")
    if limits.new_tokens is not None and (max_new_tokens or 0) > limits.new_tokens:
        message = f"max_new_tokens is {max_new_tokens} but at most {limits.new_tokens} are allowed."
        raise TokensOverLimit(message, field="max_new_tokens", value=max_new_tokens, limit=limits.new_tokens)
    return Question(
        id=question_id, question=card.question, context=card.context, system=card.system or None, adapter=adapter,
        sampling=SamplingParams(**{name: value for name, value in given.items() if value is not None}),
        max_new_tokens=DEFAULT_MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens,
    )


@dataclass(frozen=True)
class Parsed:
    """The questions that can run, and the mistakes of those that cannot, by card."""

    questions: tuple[Question, ...]
    mistakes: Mapping[str, InputError]


def parse_all(cards: Mapping[str, CardValues], adapters: Sequence[str], limits: Limits = LOCAL) -> Parsed:
    """Every card by itself: one with a mistake takes nothing from the others."""
    questions: list[Question] = []
    mistakes: dict[str, InputError] = {}
    for question_id, card in cards.items():
        try:
            if limits.questions is not None and len(questions) >= limits.questions:
                raise TooManyQuestions(len(cards), limits.questions)
            questions.append(parse(question_id, card, adapters, limits))
        except InputError as error:
            mistakes[question_id] = error
    return Parsed(tuple(questions), mistakes)


_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "temperature": float, "max_new_tokens": int, "seed": int, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float,
}


def _number(name: str, text: str, question_id: str) -> float | int | None:
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
