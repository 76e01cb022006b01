"""Stop strings: found across the borders of pieces, never shown, and nothing held back in vain."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kev_engine.text.stop import StopMatcher

SOAK = os.environ.get("KEV_SOAK") == "1"
SLICE = settings(max_examples=5000 if SOAK else 300, derandomize=not SOAK, deadline=None)


@pytest.mark.parametrize(("case", "pieces", "stops", "deltas", "matched"), [
    ("BR-151 the start of a stop string", ["E", "ND", "."], ["END."], ["", "", ""], "END."),
    ("BR-152 a stop string in three pieces", ["ok", "\nQ", ":"], ["\nQ:"], ["ok", "", ""], "\nQ:"),
    ("BR-153 a stop string across two tokens", ["beta", " gam", "ma delta"], ["gamma"], ["beta", " ", ""], "gamma"),
    ("BR-155 nothing held back in vain", ["abc", "de"], ["xyz"], ["abc", "de"], None),
    ("a beginning that came to nothing", ["EN", "TER"], ["END."], ["", "ENTER"], None),
    ("a beginning inside a beginning", ["aab", "aac"], ["aabaac", "abaab"], ["", ""], "aabaac"),
    ("the first that is whole", ["abcd"], ["bcd", "c"], ["ab"], "c"),
    ("the longest of those that end together", ["xabc"], ["c", "abc"], ["x"], "abc"),
    ("no stop strings", ["a", "b"], [], ["a", "b"], None),
    ("nothing after the match", ["a!b", "c"], ["!"], ["a", ""], "!"),
])
def test_pieces(case: str, pieces: list[str], stops: list[str], deltas: list[str], matched: str | None) -> None:
    matcher = StopMatcher(stops)
    results = [matcher.push(piece) for piece in pieces]
    assert [released for released, _ in results] == deltas, case
    assert results[-1][1] == matched
    assert matcher.flush() == ""


def test_an_unfinished_beginning_is_flushed_once() -> None:
    matcher = StopMatcher(["END."])
    assert matcher.push("the EN") == ("the ", None)
    assert matcher.flush() == "EN"
    assert matcher.flush() == ""


@SLICE
@given(
    text=st.text("ab\n", max_size=24), cuts=st.lists(st.integers(1, 5), max_size=24),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
)
def test_the_cut_of_the_text_does_not_matter(text: str, cuts: list[int], stops: list[str]) -> None:
    """The result is that of the slow definition: the shortest beginning of the text that ends in a stop string."""
    ends = [end for end in range(1, len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    matched = max((stop for stop in stops if ends and text[: ends[0]].endswith(stop)), key=len, default=None)
    shown = text[: ends[0] - len(matched)] if matched is not None else text

    matcher, released, found, seen = StopMatcher(stops), "", None, 0
    for cut in [*cuts, len(text)]:
        part, found = matcher.push(text[seen : seen + cut])
        seen += cut
        released += part
        assert shown.startswith(released)
        if found is None:
            held = text[len(released) : seen]
            assert not held or any(stop.startswith(held) for stop in stops), "held back in vain"
    assert found == matched
    assert released + matcher.flush() == shown
