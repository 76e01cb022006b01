"""The questions' colours: told apart by every eye, readable as letters, and the same wherever they are written down."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from app.render import mask_svg, memory
from tests.app.test_doctor_render import CSS, VISION, lab

INK_SHARE = 0.3
"""A card's letter is its colour, mixed with so much ink (board.css)."""


def colours(scheme: str) -> dict[str, str]:
    block = re.search(rf"^(?::root, )?\.{scheme} \{{(.*?)\}}", (CSS / "page.css").read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[1]))


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """The ratio of WCAG 2."""
    linear = [np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in (one, other)]
    light = sorted(float(c @ np.array([0.2126, 0.7152, 0.0722])) + 0.05 for c in linear)
    return light[1] / light[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_questions_are_told_apart_by_every_eye_and_their_letters_are_read(scheme):
    known = colours(scheme)
    names = [f"q{number}" for number in range(8)]
    for vision in VISION.values():
        seen = {name: lab(known[name], vision) for name in [*names, "shared"]}
        apart = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(seen, 2)}
        assert min(far for pair, far in apart.items() if set(pair) <= set(names[:4])) > 20
        assert min(far for pair, far in apart.items() if "shared" not in pair) > 12
        assert min(apart.values()) > 9
    for name in names:
        letter = (1 - INK_SHARE) * rgb(known[name]) + INK_SHARE * rgb(known["ink"])
        assert contrast(letter, rgb(known["panel"])) >= 4.5, name


def test_saved_pictures_and_plots_have_the_colours_of_the_page():
    light = [colours("light")[f"q{number}"] for number in range(8)]
    assert list(mask_svg.COLOURS) == light
    assert list(memory.COLOURS) == light[: len(memory.COLOURS)]
