"""StopMatcher: finds the first stop string in a stream of text and keeps it from being shown.

    matcher = StopMatcher(("END.", "\nQ:"))
    released, matched = matcher.push("E")      # "", None: it may become a stop string
    released, matched = matcher.push("ND.")    # "", "END."
    released = matcher.flush()                 # held-back text, when the answer ends without a match

Only the longest suffix that begins some stop string is held back. The match is the one that is complete first (of
several that end at the same character, the longest), so the result does not depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Watches one growing answer. After a match nothing more is released."""

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stops = tuple(stop_strings)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self._matched: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that may be shown now, and the stop string once it was found."""
        if self._matched is not None:
            return "", self._matched
        text = self._held + text
        found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            end, _, self._matched = min(found)
            self._held = ""
            return text[: end - len(self._matched)], self._matched
        keep = self._count_undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """The text held back so far; it turned out to be no stop string."""
        held, self._held = self._held, ""
        return held

    def _count_undecided(self, text: str) -> int:
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
