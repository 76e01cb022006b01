"""HistoryView: what one browser tab looks at in the history, and what it last kept. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.run_record import RunRecord
    from kev_engine import KevError


@dataclass(frozen=True)
class Opened:
    """A run that is looked at; `number` None: it was imported and is not kept."""

    record: RunRecord
    number: int | None = None


@dataclass(frozen=True)
class HistoryView:
    """`token` owns the rows of this tab on a public page, where `is_on` is its switch. `last` is the run it kept last.

    `first` waits to be compared with the run opened next; `beside` is the one that `opened` is compared with.
    """

    token: str = ""
    is_on: bool = False
    last: Opened | None = None
    search: str = ""
    opened: Opened | None = None
    first: Opened | None = None
    beside: Opened | None = None
    told: str = ""
    """The name of a sentence of the catalogue, with what it needs in `named`."""
    named: str = ""
    error: KevError | None = None
