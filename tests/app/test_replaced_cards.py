"""Cards that the server has replaced while the browser sent them are refused, whatever was to be done with them."""

import pytest

from app import board
from app.board import CardValues
from app.session import Session
from app.wiring.run import _outdated

CARDS = board.board((CardValues("Who?"),))


def test_the_browser_sends_back_which_filling_it_shows():
    assert board.filling(board.to_json(CARDS)) == 0
    assert board.filling(board.to_json(CARDS, 3)) == 3
    assert board.from_json(board.to_json(CARDS, 3)) == CARDS


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '{"filling": "4"}', "[" * 100_000])
def test_what_no_page_sends_counts_as_the_first(text):
    assert board.filling(text) == 0


def test_only_an_earlier_filling_is_refused():
    """A later one is of a session that the server has forgotten, as after its restart."""
    state = Session(preset="", filling=2)
    assert [_outdated(state, board.to_json(CARDS, number)) for number in (0, 1, 2, 3)] == [
        "error.cards_replaced", "error.cards_replaced", "", ""
    ]
