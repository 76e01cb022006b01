"""A small picture of the cells, as text or as PNG, made from the same sets the report judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from kev_engine.doctor.bands import blocks
from kev_engine.doctor.cells import overlay
from kev_engine.doctor.report import Report
from kev_engine.errors import UnreadableFile

# Blank, right, leak, missing: dark blue and orange stay apart for every kind of colour vision.
COLOURS = ((245, 245, 245), (68, 119, 170), (238, 119, 51), (204, 187, 68))
SIGNS = "·█×?"
RIGHT, LEAK, MISSING = 1, 2, 3


def grid(report: Report, size: int) -> npt.NDArray[np.uint8] | None:
    """Rows of 0 (hidden), 1 (right), 2 (leak), 3 (missing), at most `size` a side; the worst of a block is shown."""
    if report.will is None:
        return None
    right = report.should if report.should is not None else report.will
    step = max(1, -(-max(report.will.num_queries, report.will.num_keys) // size))
    both = {"will": report.will, "should": right}
    marks = overlay(report.will.num_queries, report.will.num_keys, both)
    picture = np.zeros((-(-report.will.num_queries // step), -(-report.will.num_keys // step)), dtype=np.uint8)
    for value, cells in ((RIGHT, marks.select("will", "should")), (MISSING, marks.select("should", without="will")),
                         (LEAK, marks.select("will", without="should"))):
        picture[blocks(cells, step).dense()] = value
    return picture


def as_text(report: Report, size: int = 48) -> str:
    """The picture as lines: `█` read and right, `×` read and wrong, `?` hidden and wrong, `·` hidden."""
    picture = grid(report, size)
    if picture is None:
        return ""
    lines = ["".join(SIGNS[value] for value in row) for row in picture]
    queries, keys = report.will.num_queries, report.will.num_keys  # type: ignore[union-attr]
    head = f"query (reads) ↓ {queries}, key (is read) → {keys}; █ right  × leak  ? missing  · hidden"
    return "\n".join([head, *lines])


def save_png(report: Report, path: Path, size: int = 1024) -> bool:
    """Writes the picture; False where the report has no cells to draw. Raises UnreadableFile."""
    from PIL import Image

    picture = grid(report, size)
    if picture is None:
        return False
    scale = max(1, min(16, size // max(picture.shape)))
    pixels = np.array(COLOURS, dtype=np.uint8)[picture].repeat(scale, axis=0).repeat(scale, axis=1)
    try:
        Image.fromarray(pixels).save(path)
    except (OSError, ValueError) as trouble:
        raise UnreadableFile(str(path), "--picture", f"the picture cannot be written ({trouble})") from trouble
    return True
