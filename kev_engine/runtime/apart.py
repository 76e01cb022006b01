"""Apart: work on a thread of its own, which ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> Result:
    """What `work` returns, or what it raises, computed on a thread of its own.

    OpenMP keeps a team of threads for each thread that ever computed, as long as that lives. Once all teams together
    have more threads than there are cores, none of them waits awake any more, and each product of the worker's begins
    by waking a thread up (docs/decisions.md, Speed). So whatever computes beside the worker does it here.
    """
    done: Future[Result] = Future()

    def compute() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # handed to the caller, whatever it is
            done.set_exception(error)

    # A daemon, so that an interrupted caller need not wait for it.
    threading.Thread(target=compute, name="kev-apart", daemon=True).start()
    return done.result()
