"""The progress of a load that a thread reports and the page shows."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def newest(steps: SimpleQueue[T]) -> T:
    """Waits for a step; of several that wait, the last: those before it are out of date."""
    step = steps.get()
    while True:
        try:
            step = steps.get_nowait()
        except Empty:
            return step
