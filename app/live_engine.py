"""LiveEngine: stands where an Engine stands, so that the page's model can be exchanged while every tab stays open."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kev_engine import Engine


class LiveEngine:
    """Whatever is asked of it, the engine of the moment answers: handlers keep this and never its parts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def current(self) -> Engine:
        """The engine itself, for a caller that needs one and the same over several calls."""
        return self._engine

    def replace(self, engine: Engine) -> None:
        """Answer with `engine` from now on; the one before is closed, which ends its runs with EngineClosed.

        Its memory is given back: a start may have frozen it out of the collector's sight (app.py).
        """
        before, self._engine = self._engine, engine
        before.close()
        del before
        gc.unfreeze()
        gc.collect()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
