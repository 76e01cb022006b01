"""Board: what stands in the question cards of one tab, as text, and the JSON in which the browser sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from string import ascii_uppercase

from kev_engine.errors import InvalidField

POOL_SIZE = 32
LETTERS = (*ascii_uppercase, *(f"A{letter}" for letter in ascii_uppercase))
CARD_IDS = LETTERS[:POOL_SIZE]
"""The id of the question in each card that a page may have; it is also its letter on the page, and fixes its colour."""
DEFAULT_MAX_NEW_TOKENS = 64


@dataclass(frozen=True)
class CardValues:
    """What stands in the fields of one card, as text; empty means the default (`adapter` empty: the base model).

    `order` lists the sampling steps with commas; `stop` and `choices` hold one text a line; `ignore_eos` is set where
    it holds anything; `expected` is the answer that a sweep compares with.
    """

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
    presence_penalty: str = ""
    frequency_penalty: str = ""
    order: str = ""
    stop: str = ""
    n: str = ""
    draft: str = ""
    json_schema: str = ""
    regex: str = ""
    choices: str = ""
    ignore_eos: str = ""
    shared: str = ""
    expected: str = ""


FIELDS = tuple(item.name for item in fields(CardValues))
_BLANK = CardValues()


@dataclass(frozen=True)
class SharedValues:
    """A shared context as it stands in its card."""

    name: str
    text: str = ""
    system: str = ""


@dataclass(frozen=True)
class Board:
    """The cards by letter, in the order of the page, and the shared contexts that they may name."""

    cards: Mapping[str, CardValues] = field(default_factory=dict)
    shared: tuple[SharedValues, ...] = ()
    shows_tokens: bool = False
    """Whether the answers are looked at token by token."""

    def only(self, *letters: str) -> Board:
        """The board with these cards alone."""
        return replace(self, cards={letter: self.cards[letter] for letter in letters if letter in self.cards})

    def with_card(self, letter: str, **values: str) -> Board:
        """The board with some fields of one card changed."""
        return replace(self, cards={**self.cards, letter: replace(self.cards[letter], **values)})


def owner(question_id: str) -> str:
    """The letter of the card that a question comes from: its own, or the one before the @ of a sweep; else empty."""
    letter = question_id.partition("@")[0]
    return letter if letter in CARD_IDS else ""


def board(cards: tuple[CardValues, ...], shared: tuple[SharedValues, ...] = ()) -> Board:
    """A board of these cards, lettered from A."""
    return Board(dict(zip(CARD_IDS, cards, strict=False)), shared)


def to_json(board: Board, filling: int = 0) -> str:
    """The board for the browser; fields at their default are left out.

    `filling` counts how often the server filled the cards; the browser sends it back with what became of them.
    """
    cards = [
        {"id": letter, **{name: getattr(card, name) for name in FIELDS if getattr(card, name) != getattr(_BLANK, name)}}
        for letter, card in board.cards.items()
    ]
    shared = [{"name": one.name, "text": one.text, "system": one.system} for one in board.shared]
    numbered = {"filling": filling} if filling else {}
    return json.dumps({"cards": cards, "shared": shared, **numbered}, ensure_ascii=False)


def filling(text: str) -> int:
    """Which filling of the cards became the board that the browser sent; 0 for those that the page came with."""
    try:
        found = json.loads(text)["filling"]
    except (TypeError, ValueError, KeyError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def from_json(text: str) -> Board:
    """The board that the browser sent.

    Raises InvalidField for anything else, which no page sends: another shape, a value that is not text, a letter that
    no card has or that two have.
    """
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise InvalidField("board", text, "it must be the JSON of the page's cards") from None
    content = content if isinstance(content, dict) else {}
    cards: dict[str, CardValues] = {}
    for row in _rows(content, "cards"):
        letter = row.get("id", "")
        if letter not in CARD_IDS or letter in cards:
            raise InvalidField("board", letter, f"each card has its own letter of {CARD_IDS[0]} to {CARD_IDS[-1]}")
        cards[letter] = CardValues(**{name: row[name] for name in FIELDS if name in row})
    shared = tuple(SharedValues(row.get("name", ""), row.get("text", ""), row.get("system", ""))
                   for row in _rows(content, "shared"))
    return Board(cards, shared, content.get("tokens") is True)


def _rows(content: Mapping[str, object], key: str) -> list[dict[str, str]]:
    rows = content.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidField("board", key, "it must be a list of cards")
    for row in rows:
        for name, value in row.items():
            if name in (*FIELDS, "id", "name", "text", "system") and not isinstance(value, str):
                raise InvalidField("board", value, f"{name} must be text")
    return rows
