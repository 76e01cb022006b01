"""What the history keeps of runs, and what its buttons do. Nothing here raises: a mistake is in the tab's view."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.history import Found, HistoryUnavailable, RunLog
from app.history_view import HistoryView, Opened
from app.run_record import from_json, record
from app.session import Session
from kev_engine import KevError

if TYPE_CHECKING:
    from app.board import Board
    from app.forms import Parsed
    from kev_engine.runtime.engine import EngineInfo

_log = logging.getLogger(__name__)
T = TypeVar("T")
FILE = "history.sqlite"
KEEP, ON, OFF = "keep", "1", "0"
NOTHING = Found((), 0)


@dataclass(frozen=True)
class HistoryHandlers:
    """The history of one page. On a public page each tab keeps for itself, off at first, and leaves nothing behind."""

    log: RunLog
    is_public: bool = False

    def owner(self, session: Session) -> str:
        """Whose rows a tab sees: everybody's at home, its own on a public page."""
        if not self.is_public:
            return ""
        if not session.history.token:
            session.history = replace(session.history, token=secrets.token_hex(16))
        return session.history.token

    def is_on(self, session: Session) -> bool:
        """Whether runs are kept now."""
        if self.is_public:
            return session.history.is_on
        return self._try(session, lambda: self.log.setting(KEEP, ON) == ON, False)

    def switch(self, session: Session, is_on: bool) -> None:
        """Keep runs from now on, or no longer; at home this holds for every tab and stays."""
        session.history = replace(session.history, is_on=is_on, told="", error=None)
        if not self.is_public:
            self._try(session, lambda: self.log.set(KEEP, ON if is_on else OFF), None)

    def keep(self, session: Session, board: Board, parsed: Parsed, info: EngineInfo) -> None:
        """A run has ended: keep it where the switch is on."""
        view = session.view
        if not parsed.questions or (view.run is None and view.notice is None) or not self.is_on(session):
            return
        kept = record(board, parsed, view, info)
        number = self._try(session, lambda: self.log.add(kept, self.owner(session)), None)
        if number is None:
            session.history = replace(session.history, last=None)
        else:
            session.history = replace(session.history, last=Opened(kept, number), error=None)

    def audited(self, session: Session, board: Board) -> None:
        """An audit has ended: it belongs to the run kept last where that asked the same."""
        last, audit = session.history.last, session.view.audit
        if last is None or last.number is None or audit is None or last.record.board != board:
            return
        verdict = {name: value for name, value in audit.to_json().items() if name != "layout"}
        kept = last.record.with_audit({
            **verdict, "foreign_cells": audit.foreign_cells, "foreign_cells_allowed": audit.foreign_cells_allowed,
            "num_steps": audit.num_steps,
        })
        number = last.number
        self._try(session, lambda: self.log.replace(number, kept, self.owner(session)), None)
        session.history = replace(session.history, last=Opened(kept, number))

    def found(self, session: Session) -> Found:
        """The list as the tab searches it."""
        return self._try(session, lambda: self.log.search(session.history.search, self.owner(session)), NOTHING)

    def search(self, session: Session, text: str) -> None:
        session.history = replace(session.history, search=text[:500], told="", error=None)

    def open(self, session: Session, number: int) -> None:
        """Look at a run; where another one waits for its comparison, beside that one."""
        found = self._try(session, lambda: self.log.get(number, self.owner(session)), None)
        if found is None:
            if session.history.error is None:
                session.history = replace(session.history, told="history.gone")
            return
        first = session.history.first
        session.history = replace(session.history, opened=Opened(found, number), beside=first, first=None, told="",
                                  error=None)

    def compare(self, session: Session) -> None:
        """The opened run waits for the one to compare it with."""
        if session.history.opened is not None:
            session.history = replace(session.history, first=session.history.opened, beside=None,
                                      told="history.compare_hint", error=None)

    def delete(self, session: Session) -> None:
        """Delete the opened run."""
        opened = session.history.opened
        if opened is not None and opened.number is not None:
            number = opened.number
            self._try(session, lambda: self.log.delete(number, self.owner(session)), None)
        self._forget(session)

    def clear(self, session: Session) -> None:
        """Delete every run that this tab sees."""
        self._try(session, lambda: self.log.clear(self.owner(session)), None)
        self._forget(session)

    def bring(self, session: Session, name: str, text: str) -> None:
        """Open a run out of an exported file, and keep it where the switch is on."""
        read = self._try(session, lambda: from_json(text), None)
        if read is None:
            return
        number = None
        if self.is_on(session):
            number = self._try(session, lambda: self.log.add(read, self.owner(session)), None)
        session.history = replace(session.history, opened=Opened(read, number), beside=session.history.first,
                                  first=None, told="history.imported", named=name[:200])

    def leave(self, session: Session) -> None:
        """The tab was closed: a public page keeps nothing of it."""
        if self.is_public and session.history.token:
            self._try(session, lambda: self.log.clear(session.history.token), None)

    def _forget(self, session: Session) -> None:
        view = session.history
        session.history = HistoryView(view.token, view.is_on, search=view.search, error=view.error)

    def _try(self, session: Session, action: Callable[[], T], otherwise: T) -> T:
        """What `action` returns; where it fails, `otherwise`, and the reason in the tab's view."""
        try:
            result = action()
        except KevError as error:
            session.history = replace(session.history, error=error, told="")
            return otherwise
        except Exception as error:
            _log.error("the history failed", exc_info=error)
            told = HistoryUnavailable(self.log.name, "other", type(error).__name__)
            session.history = replace(session.history, error=told, told="")
            return otherwise
        return result


def run_log(home: Path, is_public: bool) -> RunLog:
    """The log of a page; a public one does not say where it lies."""
    return RunLog(home / FILE, FILE if is_public else None)
