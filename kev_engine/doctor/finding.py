"""Finding: one thing that is wrong with a batch, as a code and facts. The words for it stand in `wording.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kev_engine.doctor.wording import Part, render

Level = Literal["note", "warning", "error"]
RANK = {"ok": 0, "note": 1, "warning": 2, "error": 3}


@dataclass(frozen=True)
class Pair:
    """`count` cells of readers in segment `reader` on keys of segment `read`; −1 = outside every segment."""

    reader: int
    read: int
    count: int


@dataclass(frozen=True)
class Finding:
    """A code of docs/doctor.md. `count` counts cells, `indexes` are places in the row (query rows for cell codes).

    `expected` is the corrected value where there is exactly one, `found` what stands there now; `variant` chooses among
    the sentences for a code and `facts` fill them.
    """

    code: str
    level: Level = "error"
    count: int | None = None
    indexes: tuple[int, ...] | None = None
    pairs: tuple[Pair, ...] | None = None
    expected: Any = None
    found: Any = None
    variant: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def message(self) -> str:
        return self.say("message")

    @property
    def repair(self) -> str:
        return self.say("repair")

    def say(self, part: Part, language: str = "en", names: Mapping[object, str] | None = None) -> str:
        """The sentence in `language`; `names` says what its reader calls the segments, by number."""
        facts = self._facts()
        for fact in ("reader", "read", "segment") if names else ():
            facts[fact] = (names or {}).get(facts.get(fact), facts.get(fact))
        return render(self.key, facts, part, language)

    @property
    def key(self) -> str:
        """The name of its sentences in the catalogue."""
        return f"{self.code}.{self.variant}" if self.variant else self.code

    def _facts(self) -> dict[str, object]:
        own = {"count": self.count, "expected": self.expected, "found": self.found,
               "indexes": list(self.indexes or ()), "num_indexes": len(self.indexes or ())}
        return own | dict(self.facts)

    def as_json(self) -> dict[str, Any]:
        """The finding as FORMAT writes it."""
        return {
            "code": self.code, "level": self.level, "count": self.count,
            "indexes": None if self.indexes is None else list(self.indexes),
            "pairs": None if self.pairs is None else [asdict(pair) for pair in self.pairs],
            "expected": self.expected, "found": self.found, "message": self.message, "repair": self.repair,
        }


@dataclass(frozen=True)
class Assumption:
    """Something the doctor had to assume, or could not judge, and on what it depends."""

    name: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.say()

    def say(self, language: str = "en") -> str:
        return render(f"assumed.{self.name}", self.facts, "message", language)
