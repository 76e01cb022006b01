"""Drafter: guesses how a story goes on by looking up how its last tokens went on before.

    drafter = Drafter(8, prompt_token_ids)
    guesses = drafter.guess(story, limit)          # at most 8 and `limit`, often none
    drafter.record(len(guesses), num_confirmed)

It reads the story's own tokens and nothing else. Whether guessing pays is judged by the story's own counts: a confirmed
guess saves one step, every guess costs the share ROW_COST of one. Once more than CREDIT steps were lost, no guess is
made for a while, each time twice as long. The clock has no say, so neighbours have none.
"""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (4, 3, 2)
"""How many of the last tokens are looked up, longest first."""
ROW_COST = 0.2
"""What one guess costs, as a share of the step that draws one token; benchmarks/speculative.py measures it."""
CREDIT = 4.0
FIRST_PAUSE = 32
"""Tokens that are drawn without a guess once the credit is used up for the first time."""


class Drafter:
    """The guesses for one story of which tokens are only ever added."""

    def __init__(self, max_guesses: int, token_ids: Sequence[int] = ()) -> None:
        self.num_proposed = 0
        self.num_accepted = 0
        self._max_guesses = max_guesses
        self._places: dict[tuple[int, ...], int] = {}
        """Where the story went on behind the latest occurrence of each n-gram."""
        self._num_known = 0
        self._credit = CREDIT
        self._pause = FIRST_PAUSE
        self._resumes_at = 0
        self._learn(token_ids)

    def guess(self, token_ids: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` tokens that followed the last ones when they stood in the story before."""
        self._learn(token_ids)
        if len(token_ids) < self._resumes_at:
            return []
        places = (self._places.get(tuple(token_ids[-size:])) for size in SIZES if size <= len(token_ids))
        place = next((place for place in places if place is not None), None)
        guesses: list[int] = []
        if place is not None:
            for index in range(place, place + min(self._max_guesses, limit)):
                # A story that repeats itself is read on into its own guesses.
                behind = index - len(token_ids)
                guesses.append(token_ids[index] if behind < 0 else guesses[behind])
        return guesses

    def record(self, num_proposed: int, num_accepted: int) -> None:
        """Take note of how many of the proposed tokens were drawn."""
        self.num_proposed += num_proposed
        self.num_accepted += num_accepted
        self._credit = min(self._credit + num_accepted - ROW_COST * num_proposed, CREDIT)
        if self._credit < 0:
            self._resumes_at = self._num_known + self._pause
            self._pause *= 2
            self._credit = CREDIT

    def _learn(self, token_ids: Sequence[int]) -> None:
        """Enter the n-grams that something follows."""
        for end in range(self._num_known, len(token_ids)):
            for size in SIZES:
                if size <= end:
                    self._places[tuple(token_ids[end - size : end])] = end
        self._num_known = len(token_ids)
