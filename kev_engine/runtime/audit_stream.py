"""AuditStream: an audit under way, forward by forward, for whoever waits for it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from kev_engine.runtime.audit import Audit


@dataclass(frozen=True)
class AuditProgress:
    """`done` of `total` forwards of the proofs have been computed; total is 0 while the run is being recorded."""

    done: int
    total: int


class AuditCancelled(Exception):
    """The audit was given up between two forwards; whoever did so knows."""


class AuditStream:
    """The progress of one audit, then its Audit; iterating ends without one when it was cancelled.

    Raises from the iteration what ended the audit otherwise (InputError, EngineClosed, …).
    """

    def __init__(self, start: Callable[[Callable[[int, int], None], Future[Audit]], None]) -> None:
        self._events: queue.SimpleQueue[AuditProgress | None] = queue.SimpleQueue()
        self._done: Future[Audit] = Future()
        self._is_cancelled = False
        self._done.add_done_callback(lambda _: self._events.put(None))
        start(self._report, self._done)

    def _report(self, done: int, total: int) -> None:
        if self._is_cancelled:
            raise AuditCancelled
        self._events.put(AuditProgress(done, total))

    def __iter__(self) -> Iterator[AuditProgress | Audit]:
        try:
            while (event := self._events.get()) is not None:
                yield event
            try:
                yield self._done.result()
            except AuditCancelled:
                return
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give the audit up before its next forward."""
        self._is_cancelled = True
