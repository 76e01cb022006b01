"""TerminalProgress: how far a model is on its way, as one line on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

SECONDS_BETWEEN = 0.2
SECONDS_BETWEEN_LINES = 5.0
"""Where the output is a file or a log, each report is a line of its own."""

_MIB = 2**20
_BYTES_ABOVE = 100_000
"""A total of more than this counts bytes; stages of weights count in hundreds."""


class TerminalProgress:
    """A `Progress` that rewrites one line of `output` (standard error), at most five times a second."""

    def __init__(self, output: TextIO | None = None) -> None:
        self._output = sys.stderr if output is None else output
        self._is_terminal = self._output.isatty()
        self._stage = ""
        self._shown_at = float("-inf")

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        pause = SECONDS_BETWEEN if self._is_terminal else SECONDS_BETWEEN_LINES
        if stage == self._stage and now - self._shown_at < pause and not 0 < total <= done:
            return
        self._stage, self._shown_at = stage, now
        line = f"kev: {stage} {_amount(done, total)}".rstrip()
        self._output.write(f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n")
        self._output.flush()

    def end(self) -> None:
        """Clear the line, so that what is printed next stands alone."""
        if self._is_terminal and self._stage:
            self._output.write("\r\x1b[K")
            self._output.flush()


def _amount(done: int, total: int) -> str:
    if total <= 0:
        return ""
    if total > _BYTES_ABOVE:
        return f"{done / _MIB:,.0f} of {total / _MIB:,.0f} MiB"
    return f"{done:,} of {total:,}"
