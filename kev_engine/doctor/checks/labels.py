"""Labels and named spans against tokens and borders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kev_engine.doctor.cells import BoolArray
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.layouts import Segmentation

IGNORED = -100


def check(facts: Facts) -> Iterator[Finding]:
    spans = facts.batch.spans or {}
    for name, span in spans.items():
        if span is None:
            yield Finding("SPAN_UNKNOWN", found=name, facts={"name": name})
    yield from _past_the_row(facts)
    labels, ids = facts.batch.labels, facts.ids
    if labels is None or ids is None or labels.shape[-1] != ids.shape[1]:
        return
    lines = np.atleast_2d(labels)
    if len(ids) > 1 and lines.shape == ids.shape and facts.batch.labels_shifted:
        for row, (line, of_row) in enumerate(zip(lines, ids, strict=True)):
            if _rolled(line, of_row):
                right = lines.copy()
                right[:, -1] = IGNORED
                yield Finding("LABEL_CROSSES_BOUNDARY", indexes=(lines.shape[1] - 1,), expected=right.tolist(),
                              variant="rolled", facts={"place": lines.shape[1] - 1, "row": row})
                return
    if len(lines) != 1 or len(ids) != 1:
        return
    line = lines[0]
    yield from _borders(facts, line, ids[0])
    yield from _spans(facts, line, ids[0])


def _past_the_row(facts: Facts) -> Iterator[Finding]:
    """A span that ends behind the row, or that straddles a border between strangers."""
    total = facts.total
    for name, span in (facts.batch.spans or {}).items():
        if span is None or total is None:
            continue
        start, end = span
        if end > total:
            yield Finding("SPAN_OVERRUN", found=[start, end], variant="row",
                          facts={"name": name, "end": end, "total": total})
        elif facts.given is not None and facts.given.num_tokens == total:
            yield from _straddles(facts.given, name, start, end)


def _straddles(segments: Segmentation, name: str, start: int, end: int) -> Iterator[Finding]:
    if start >= end:
        return
    inside = [(number, interval) for number, interval in segments.intervals.items()
              if interval[0] < end and start < interval[1]]
    if len(inside) < 2 or all(start <= low and high <= end for _, (low, high) in inside):
        return
    lineage = [segments.names[piece] for piece in segments.layout.lineage(segments.piece[inside[-1][0]])]
    if all(number in lineage for number, _ in inside):
        return
    for _, (low, high) in inside:
        if high - low == end - start and abs(low - start) == 1:
            yield Finding("SPAN_OFF_BY_ONE", found=[start, end], expected=[low, high], variant="segment",
                          facts={"name": name})
            return
    yield Finding("SPAN_OVERRUN", found=[start, end], variant="border",
                  facts={"name": name, "end": end, "border": inside[0][1][1]})


def _borders(facts: Facts, labels: IntArray, ids: IntArray) -> Iterator[Finding]:
    """A label that makes the last token of a segment predict a token of the next one."""
    batch, segments = facts.batch, facts.segments
    if segments is None or segments.num_tokens != len(labels):
        if batch.labels_shifted and _rolled(labels, ids):
            yield _crossing(labels, [len(labels) - 1], "rolled")
        return
    if batch.labels_shifted:
        lasts = [end - 1 for name, (_, end) in segments.intervals.items() if not _goes_on(segments, name, end)]
        bad = [place for place in lasts if labels[place] != IGNORED]
        if bad:
            yield _crossing(labels, bad, "")
    elif batch.consumer == "hf":
        firsts = [start for start, _ in segments.intervals.values()
                  if start > 0 and not _continues_parent(segments, start)]
        bad = [place for place in firsts if labels[place] != IGNORED]
        if bad:
            yield _crossing(labels, bad, "unshifted")


def _crossing(labels: IntArray, bad: list[int], variant: str) -> Finding:
    right = labels.copy()
    right[bad] = IGNORED
    return Finding("LABEL_CROSSES_BOUNDARY", indexes=tuple(bad), expected=right.tolist(), variant=variant,
                   facts={"place": bad[0]})


def _rolled(labels: IntArray, ids: IntArray) -> bool:
    """Whether labels are the ids rolled by one, so that the last token predicts the first."""
    known = labels != IGNORED
    return len(ids) > 2 and bool(known[-1]) and bool((labels == np.roll(ids, -1))[known].all()) and ids[0] != ids[-1]


def _goes_on(segments: Segmentation, name: int, end: int) -> bool:
    """Whether the only child of a segment starts right behind it: the same story goes on."""
    piece = segments.piece[name]
    children = [child for child, parent in enumerate(segments.layout.parents) if parent == piece]
    return len(children) == 1 and segments.layout.intervals[children[0]][0] == end


def _continues_parent(segments: Segmentation, start: int) -> bool:
    piece = next(index for index, interval in enumerate(segments.layout.intervals) if interval[0] == start
                 and interval[1] > start)
    parent = segments.layout.parents[piece]
    return parent is not None and segments.layout.intervals[parent][1] == start


def _spans(facts: Facts, labels: IntArray, ids: IntArray) -> Iterator[Finding]:
    batch = facts.batch
    named = [span for span in (batch.spans or {}).values() if span is not None and span[0] < span[1]]
    step = 1 if batch.labels_shifted else 0
    if not named:
        if batch.spans is None and _shifted_by_one(labels, ids, step):
            yield Finding("SPAN_OFF_BY_ONE", indexes=tuple(np.flatnonzero(labels != IGNORED).tolist()),
                          variant="shift", facts={"step": step})
        return
    inside = np.zeros(len(ids), dtype=np.bool_)
    for start, end in named:
        inside[start:end] = True
    right = _targets(ids, step, inside, facts.segments)
    if (right == labels).all():
        return
    wrong = tuple(np.flatnonzero(right != labels).tolist())
    wanted, trained = right != IGNORED, labels != IGNORED
    near = _grown(wanted) & ~_shrunk(wanted)
    by_one = not ((wanted != trained) & ~near).any() or (_shifted_by_one(labels, ids, step))
    yield Finding("SPAN_OFF_BY_ONE" if by_one else "SPAN_OVERRUN", indexes=wrong, expected=right.tolist(),
                  facts={"place": wrong[0], "num_wanted": int(wanted.sum()), "num_trained": int(trained.sum())})


def _targets(ids: IntArray, step: int, inside: BoolArray, segments: Segmentation | None) -> IntArray:
    """The labels that train exactly the tokens marked `inside`."""
    right = np.full(len(ids), IGNORED, dtype=np.int64)
    shifted = inside[step:]
    right[: len(shifted)] = np.where(shifted, ids[step:], IGNORED)
    if step and segments is not None and segments.num_tokens == len(ids):
        for name, (_, end) in segments.intervals.items():
            if not _goes_on(segments, name, end):
                right[end - 1] = IGNORED
    return right


def _grown(marks: BoolArray) -> BoolArray:
    wide = marks.copy()
    wide[1:] |= marks[:-1]
    wide[:-1] |= marks[1:]
    return wide


def _shrunk(marks: BoolArray) -> BoolArray:
    """The marks without the first and the last of each run."""
    narrow = marks.copy()
    narrow[1:] &= marks[:-1]
    narrow[:-1] &= marks[1:]
    narrow[0] = narrow[-1] = False
    return narrow


def _shifted_by_one(labels: IntArray, ids: IntArray, step: int) -> bool:
    """Whether at least two labels fit the ids one place further on or back, and not where they should."""
    known = np.flatnonzero(labels != IGNORED)
    other = known + (1 - step)
    usable = (other >= 0) & (other < len(ids))
    if usable.sum() < 2:
        return False
    there = labels[known[usable]] == ids[other[usable]]
    here = known + step
    fits = [bool(place < len(ids) and labels[spot] == ids[place]) for spot, place in zip(known, here, strict=True)]
    return bool(there.all()) and not any(fits)
