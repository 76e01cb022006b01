"""The examined mask as the canvas gets it: bands and runs, never a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.doctor_view import DoctorView
from app.i18n import say, texts
from app.render.text import to_json
from kev_engine.doctor.bands import bands, blocks, window
from kev_engine.doctor.cells import Cells
from kev_engine.doctor.judge import Judged
from kev_engine.doctor.layouts import Segmentation

MOST_BANDS = 12_000
"""A mask of more bands is sent in blocks first; what a person looks at closer is sent when they do."""
COARSE = 256
MOST_WINDOW = 512
"""The largest stretch of queries, and of keys, that is sent cell by cell."""

Parts = dict[str, Cells]


def doctor_map(view: DoctorView, language: str) -> str:
    """What the canvas draws: right, leaking and missing cells as bands, the segments, and the words."""
    words = {key: text for key, text in texts(language).items() if key.startswith("doctor.")}
    judged = drawn(view)
    if judged is None:
        text = say(language, "doctor.empty" if view.report is None else "doctor.unknown")
        return to_json({"queries": 0, "keys": 0, "words": words, "label": text, "empty": text, "segments": []})
    sides = parts(judged)
    step = _step(sides)
    coarse = {name: blocks(cells, step) if step > 1 else cells for name, cells in sides.items()}
    queries, keys = judged.actual.num_queries, judged.actual.num_keys
    leaks, missing = sides["leak"].count, sides["missing"].count
    return to_json({
        "queries": queries, "keys": keys, "step": step, **{name: _listed(cells) for name, cells in coarse.items()},
        "segments": _segments(judged.segments, _pads(view)), "row": view.row,
        "rows": len(view.report.facts.judged) if view.report is not None and view.report.facts is not None else 1,
        "words": words, "empty": "",
        "label": say(language, "doctor.label", queries=queries, keys=keys, leaks=f"{leaks:,}", missing=f"{missing:,}"),
    })


def doctor_window(view: DoctorView, queries: tuple[int, int], keys: tuple[int, int]) -> str:
    """The same cells of one stretch, cell by cell; empty where there is nothing to draw."""
    judged = drawn(view)
    if judged is None:
        return ""
    queries = _clamped(queries, judged.actual.num_queries)
    keys = _clamped(keys, judged.actual.num_keys)
    near = {name: window(cells, queries, keys) for name, cells in _sets(judged).items()}
    return to_json({"queries": queries, "keys": keys, **{name: _listed(cells) for name, cells in near.items()}})


def _clamped(stretch: tuple[int, int], size: int) -> tuple[int, int]:
    first = max(0, stretch[0])
    return first, min(size, stretch[1], first + MOST_WINDOW)


def drawn(view: DoctorView) -> Judged | None:
    """The row that is drawn, or None where nobody can know its cells."""
    facts = None if view.report is None else view.report.facts
    return facts.judged[view.row] if facts is not None and view.row < len(facts.judged) else None


def parts(judged: Judged) -> Parts:
    return _sets(judged)


def _sets(judged: Judged) -> Parts:
    """Cells that are right, that leak, and that are missing; rows that are not judged are right as they are."""
    marks, live = judged.marks, judged.live
    return {
        "right": _joined(marks.select("actual", "should"), marks.select("actual", without="should", rows=~live)),
        "leak": marks.select("actual", without="should", rows=live),
        "missing": marks.select("should", without="actual", rows=live),
    }


def _joined(one: Cells, other: Cells) -> Cells:
    if not other.starts.size:
        return one
    rows, firsts, lasts = (np.concatenate([getattr(part, edge) for part in (one, other)])
                           for edge in ("run_rows", "run_firsts", "run_lasts"))
    return Cells.from_runs(one.num_queries, one.num_keys, rows, firsts, lasts)


def _step(sides: Parts) -> int:
    """1 where the bands are few enough, else how many cells a block has on each side."""
    if sum(len(cells.starts) for cells in sides.values()) <= MOST_BANDS:
        return 1
    if sum(len(cells.starts) for cells in sides.values()) <= 40 * MOST_BANDS and (
            sum(len(bands(cells)) for cells in sides.values()) <= MOST_BANDS):
        return 1
    size = max(max(cells.num_queries, cells.num_keys) for cells in sides.values())
    return -(-size // COARSE)


def _listed(cells: Cells) -> list[list[int]]:
    found: list[list[int]] = bands(cells).tolist()
    return found


def _segments(segments: Segmentation | None, pads: frozenset[int]) -> list[list[Any]]:
    """Start, end, name and colour of each segment; −1 colours padding."""
    if segments is None:
        return []
    return [[start, end, segment_name(number), -1 if number in pads else number % 8]
            for number, (start, end) in segments.intervals.items()]


def _pads(view: DoctorView) -> frozenset[int]:
    assert view.report is not None
    assert view.report.facts is not None
    return frozenset(view.report.facts.batch.pad_segments if view.report.facts.given is not None else ())


def segment_name(number: int) -> str:
    """A, B, C …, Z, AA, AB …: how the page calls segment `number`."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
