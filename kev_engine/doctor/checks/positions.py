"""Positions: length and axes, where they start and restart, padding, continuation, the tokens generated later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kev_engine.doctor.cells import BoolArray
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.finding import Finding, Level
from kev_engine.doctor.judge import Judged
from kev_engine.doctor.layouts import Segmentation, position_borders


def check(facts: Facts) -> Iterator[Finding]:
    given = facts.batch.position_ids
    if given is not None:
        rank = list(_rank(facts, given))
        yield from rank
        if not rank:
            yield from _length(facts, given)
            yield from _prefill(facts)
    if facts.batch.decode_positions is not None:
        yield from _decode(facts, facts.batch.decode_positions)


def _rank(facts: Facts, given: IntArray) -> Iterator[Finding]:
    """An axis of size 3 (time, height, width) that was taken for the batch."""
    cu, total = facts.batch.cu_seqlens or facts.batch.cu_seqlens_q, facts.total
    axes = 3 if facts.axes_as_rows or given.ndim == 3 else 0
    if facts.axes_as_rows:
        yield Finding("POS_RANK", found=2, expected=3, variant="axes", facts={"shape": list(given.shape)})
    elif axes and given.shape[0] != 3:
        yield Finding("POS_RANK", found=list(given.shape), expected=[3, *given.shape[1:]] if given.shape[1] != 3 else [
            3, given.shape[0], given.shape[2]], variant="order", facts={"shape": list(given.shape)})
    elif axes and cu is not None and total is not None and cu[-1] == 3 * given.shape[1] * given.shape[2]:
        yield Finding("POS_RANK", found=3, expected=2, facts={"shape": list(given.shape), "end": cu[-1]})


def _length(facts: Facts, given: IntArray) -> Iterator[Finding]:
    length, wanted = int(given.shape[-1]), facts.wanted_positions
    if wanted is not None and length != wanted:
        yield Finding("POS_LENGTH", found=length, expected=wanted)


def _prefill(facts: Facts) -> Iterator[Finding]:
    positions = facts.positions
    if positions is None:
        return
    if facts.given is not None:
        yield from _packed(facts, positions, facts.given)
    elif facts.keep is not None and facts.keep.shape[1] == positions.shape[1] and not facts.numbers_segments:
        if not facts.restarts:
            yield from _padded(facts, positions, facts.keep)
    elif facts.batch.past_length is not None:
        yield from _continued(facts, positions)
    elif facts.segments is not None and (facts.segments.source == "cu_seqlens" or facts.numbers_segments or (
            facts.segments.source == "attention_mask" and facts.batch.position_kind is not None)):
        yield from _packed(facts, positions, facts.segments)
    elif facts.row_mask is None and facts.real is not None and facts.real.shape[1] == positions.shape[1]:
        yield from _padded(facts, positions, facts.real)
        yield from _unknown(facts, positions)
    else:
        yield from _unknown(facts, positions)


def _like(facts: Facts, rows: list[list[int | None]]) -> Any:
    """Corrected rows in the shape of the array that was given."""
    given = facts.batch.position_ids
    assert given is not None
    if given.ndim == 1:
        return rows[0]
    rows = rows if len(rows) == given.shape[-2] else rows[:1] * int(given.shape[-2])
    return rows if given.ndim == 2 else [rows] * int(given.shape[0])


# ---------------------------------------------------------------- packed rows

def _right(facts: Facts, segments: Segmentation) -> list[int | None]:
    """Right positions of a packed row; None for tokens outside every segment."""
    start = facts.batch.position_start
    if len(segments.intervals) == 1 and facts.batch.past_length:
        start = facts.batch.past_length
    owned = segments.owner >= 0
    values = (segments.layout.position_ids + start).tolist()
    return [value if mine else None for value, mine in zip(values, owned.tolist(), strict=True)]


def _packed(facts: Facts, positions: IntArray, segments: Segmentation) -> Iterator[Finding]:
    batch = facts.batch
    right = _right(facts, segments)
    target = np.array([-1 if value is None else value for value in right], dtype=np.int64)
    live = (segments.owner >= 0) & ~np.isin(segments.owner, batch.pad_segments)
    keep = facts.real_of(0)
    if keep is not None and len(keep) == len(live) and not facts.numbers_segments:
        live &= keep
    expected = _like(facts, [list(right) for _ in positions])
    if batch.past_length and len(segments.intervals) == 1 and (positions[0][live] == target[live]).all():
        yield Finding("OK_CONTINUATION", "note", facts={"past": batch.past_length})
        return
    for row, given in enumerate(positions):
        yield from _packed_row(facts, given, target, live, segments, expected, row)
        if facts.dense_mask is None:
            yield from _pseudo_segments(given, target, live, expected, row)


def _packed_row(facts: Facts, given: IntArray, target: IntArray, live: BoolArray, segments: Segmentation,
                expected: Any, row: int) -> Iterator[Finding]:
    off = np.where(live, given - target, 0)
    if not off.any():
        return
    starts = [start + int(np.flatnonzero(live[start:end])[0]) for start, end in segments.intervals.values()
              if live[start:end].any()]
    bad = [start for start in starts if off[start]]
    offsets = off[live]
    stuck = _stuck(given, live, segments)
    if len(bad) == len(starts) and (offsets == offsets[0]).all():
        yield Finding("POS_START", indexes=tuple(bad), expected=expected,
                      facts={"row": row, "first": int(given[starts[0]]), "right": int(target[starts[0]])})
        return
    if stuck:
        yield Finding("POS_FROZEN", indexes=tuple(stuck), expected=expected, variant="prefill",
                      facts={"row": row, "value": int(given[stuck[0]])})
    if bad and (not stuck or any(start not in stuck for start in bad)):
        variant, level = _reset_level(facts, off, segments, live)
        yield Finding("POS_NOT_RESET", level, indexes=tuple(bad), expected=expected, variant=variant,
                      facts={"row": row, "first": bad[0], "value": int(given[bad[0]]), "right": int(target[bad[0]]),
                             "segment": int(segments.owner[bad[0]])})
    inner = [cut for cut in position_borders(given)[1:-1]
             if live[cut] and live[cut - 1] and cut not in stuck and segments.owner[cut] == segments.owner[cut - 1]]
    if inner:
        yield Finding("BOUNDARY_CONFLICT", indexes=tuple(inner), expected=expected, variant="inner",
                      facts={"row": row, "place": inner[0], "segment": int(segments.owner[inner[0]]),
                             "value": int(given[inner[0]]), "before": int(given[inner[0] - 1])})
    if not (stuck or bad or inner):
        # Only tokens whose neighbour is not judged are left.
        wrong = np.flatnonzero(off)
        yield Finding("POS_NOT_RESET", indexes=tuple(wrong.tolist()), expected=expected,
                      facts={"row": row, "first": int(wrong[0]), "value": int(given[wrong[0]]),
                             "right": int(target[wrong[0]]), "segment": int(segments.owner[wrong[0]])})


def _stuck(given: IntArray, live: BoolArray, segments: Segmentation) -> list[int]:
    """Places inside a judged segment whose position equals that of the token before."""
    same = np.flatnonzero(np.diff(given) == 0) + 1
    owner = segments.owner
    return [int(place) for place in same if live[place] and live[place - 1] and owner[place] == owner[place - 1]]


def _reset_level(facts: Facts, off: IntArray, segments: Segmentation, live: BoolArray) -> tuple[str, Level]:
    """Running positions are harmless under RoPE where each story is shifted as a whole, cells being right."""
    kind = facts.batch.position_kind
    decided = bool(facts.judged) and all(_decides(judged) and _right_cells(judged) for judged in facts.judged)
    uniform = _moved_together(off, segments, live)
    if kind == "rope" and decided and uniform:
        return "harmless", "note"
    if kind is None and decided and uniform:
        return "depends", "error"
    return "", "error"


def _decides(judged: Judged) -> bool:
    return judged.source in ("attention_mask", "cu_seqlens", "mask_planes")


def _right_cells(judged: Judged) -> bool:
    wrong = judged.marks.select("actual", without="should", rows=judged.live)
    missing = judged.marks.select("should", without="actual", rows=judged.live)
    return not wrong.count and not missing.count


def _moved_together(off: IntArray, segments: Segmentation, live: BoolArray) -> bool:
    """Whether every segment, together with its ancestors, is shifted by one number."""
    shift: dict[int, int] = {}
    for index, (start, end) in enumerate(segments.layout.intervals):
        part = off[start:end][live[start:end]]
        if not part.size:
            continue
        if (part != part[0]).any():
            return False
        shift[index] = int(part[0])
        parent = segments.layout.parents[index]
        if parent is not None and shift.get(parent, shift[index]) != shift[index]:
            return False
    return True


def _pseudo_segments(given: IntArray, target: IntArray, live: BoolArray, expected: Any,
                     row: int) -> Iterator[Finding]:
    """A tail of zeros: each zero starts a one-token segment for whoever derives segments from positions."""
    tail = int(np.flatnonzero(given)[-1]) + 1 if given.any() else 0
    # A zero that is right belongs to a real one-token segment.
    while tail < len(given) and live[tail] and target[tail] == 0:
        tail += 1
    if tail == 0 or len(given) - tail < 2:
        return
    yield Finding("PSEUDO_SEGMENTS", "warning", indexes=tuple(range(tail, len(given))), expected=expected,
                  facts={"row": row, "tail": tail, "length": len(given) - tail})


# ---------------------------------------------------------------- padded rows

def _padded(facts: Facts, positions: IntArray, keep: BoolArray) -> Iterator[Finding]:
    batch = facts.batch
    rows = max(len(positions), len(keep))
    lines = [(facts.positions_of(row), facts.real_of(row)) for row in range(rows)]
    right: list[list[int | None]] = []
    faults: dict[str, list[int]] = {}
    continues = False
    for row, (given, kept) in enumerate(lines):
        assert given is not None
        assert kept is not None
        start = batch.position_start
        kept_before: IntArray = np.asarray(np.cumsum(kept) - kept.astype(np.int64) + start, dtype=np.int64)
        right.append([int(kept_before[place]) if kept[place] else None for place in range(len(kept))])
        if facts.num_rows > 1 and facts.restarts_in(row):
            right[-1] = given.tolist()
            continue
        if not kept.any():
            continue
        off = (given - kept_before)[kept]
        if not off.any():
            continue
        first = int(np.flatnonzero(kept)[0])
        if batch.past_length and (off == batch.past_length).all():
            continues = True
            continue
        if (off == off[0]).all():
            code = "POS_LEFT_PAD" if off[0] == first else "POS_START"
        elif (given[kept][1:] == given[kept][:-1]).any():
            code = "POS_FROZEN"
        else:
            code = "POS_COUNTS_PADS" if (~kept).any() else "POS_START"
        faults.setdefault(code, []).append(row)
    expected = _like(facts, right) if batch.position_ids is not None and (
        batch.position_ids.ndim == 1 or len(right) == batch.position_ids.shape[-2]) else right
    for code, bad in faults.items():
        given = facts.positions_of(bad[0])
        assert given is not None
        kept = keep[min(bad[0], len(keep) - 1)]
        first = int(np.flatnonzero(kept)[0])
        told = {"row": bad[0], "rows": bad, "first": int(given[first]), "right": batch.position_start,
                "place": first, "value": int(given[first])}
        indexes = tuple(np.flatnonzero(kept).tolist()) if rows == 1 else None
        if code == "POS_LEFT_PAD":
            level: Level = "error" if batch.position_kind == "absolute" else "note"
            yield Finding(code, level, indexes=indexes, expected=expected, variant=batch.position_kind or "depends",
                          facts=told)
        else:
            variant = "prefill" if code in ("POS_FROZEN", "POS_COUNTS_PADS") else ""
            yield Finding(code, indexes=indexes, expected=expected, variant=variant, facts=told)
    if continues:
        yield Finding("OK_CONTINUATION", "note", facts={"past": batch.past_length})


def _continued(facts: Facts, positions: IntArray) -> Iterator[Finding]:
    """Tokens behind a cache: they go on where the cache ends, unless each row of it holds padding."""
    past = facts.batch.past_length or 0
    keep = facts.keep
    starts = [past] * len(positions)
    if keep is not None and keep.shape[1] == past + positions.shape[1] and len(keep) == len(positions):
        starts = [int(line[:past].sum()) for line in keep]
    for judged in facts.judged if facts.dense_mask is not None else ():
        kept = facts.cached_pads(judged.row, judged.actual)
        if kept is not None and judged.row < len(starts):
            starts[judged.row] = int(kept[:past].sum())
    length = positions.shape[1]
    right: list[list[int | None]] = [list(range(start + facts.batch.position_start,
                                                start + facts.batch.position_start + length)) for start in starts]
    if positions.tolist() == right:
        if past:
            yield Finding("OK_CONTINUATION", "note", facts={"past": past})
        return
    off = positions - np.array(right)
    if (off == off[:, :1]).all():
        if facts.batch.position_kind == "rope" and (off[:, 0] == past - np.array(starts)).all() and past:
            yield Finding("POS_LEFT_PAD", "note", expected=_like(facts, right), variant="rope",
                          facts={"row": 0, "rows": [0], "first": int(positions[0, 0])})
            return
        yield Finding("POS_START", indexes=(0,), expected=_like(facts, right),
                      facts={"row": 0, "first": int(positions[0, 0]), "right": right[0][0]})
    elif past and (np.diff(positions, axis=1) == 0).any():
        yield Finding("POS_FROZEN", expected=_like(facts, right), variant="prefill",
                      facts={"row": 0, "value": int(positions[0, 0])})


def _unknown(facts: Facts, positions: IntArray) -> Iterator[Finding]:
    """Positions alone: only what is wrong whatever the segments are."""
    for row, given in enumerate(positions):
        length = len(given)
        if length < 2:
            continue
        # Of rows whose padding is known `_padded` says it.
        known = facts.real_of(row) is not None
        if (given == given[0]).all() and facts.found_segments is None and length > 2 and not known:
            right = _like(facts, [list(range(length)) for _ in positions])
            yield Finding("POS_FROZEN", indexes=tuple(range(1, length)), expected=right, variant="prefill",
                          facts={"row": row, "value": int(given[0])})
            continue
        tail = int(np.flatnonzero(given)[-1]) + 1 if given.any() else length
        if length - tail > 2 and facts.cu is None and facts.dense_mask is None:
            yield Finding("PSEUDO_SEGMENTS", "warning", indexes=tuple(range(tail, length)),
                          facts={"row": row, "tail": tail, "length": length - tail})


# ---------------------------------------------------------------- positions of generated tokens

def _decode(facts: Facts, shaped: IntArray) -> Iterator[Finding]:
    rows, given = facts.num_rows, np.atleast_2d(shaped)
    # One number a row, or one line that all rows share.
    if shaped.ndim == 1 and rows > 1:
        given = shaped[:, None] if len(shaped) == rows else np.repeat(given, rows, axis=0)
    sizes = _prompt_sizes(facts, len(given))
    if sizes is None:
        return
    steps = np.arange(given.shape[1])
    right = np.array(sizes)[:, None] + steps[None, :]
    if np.array_equal(given, right) or _shifted_alike(facts, given, right):
        return
    expected: Any = right.tolist()
    if shaped.ndim == 1:
        one_a_row = given.shape[1] == 1 and len(shaped) == rows
        expected = right[:, 0].tolist() if one_a_row else right[0].tolist() if (right == right[:1]).all() else None
    wrong = (given != right).any(axis=1)
    bad = int(np.flatnonzero(wrong)[0])
    told = {"row": bad, "first": int(given[bad, 0]), "right": int(right[bad, 0])}
    width = facts.total
    if (np.diff(given[wrong], axis=1) == 0).any():
        code = "POS_FROZEN"
    elif len(given) > 1 and (given == given[:1]).all() and (right != right[:1]).any():
        code = "POS_SHARED_ACROSS_ROWS"
    elif width is not None and (given[wrong, 0] == width + (facts.batch.past_length or 0)).all():
        code = "POS_COUNTS_PADS"
    elif (given[wrong] == 0).all() or (given.shape[1] == 1 and (given[wrong] == right[wrong] - 1).all()):
        code = "POS_FROZEN"
    else:
        code = "POS_START"
    yield Finding(code, expected=expected, variant="decode", facts=told)


def _prompt_sizes(facts: Facts, rows: int) -> list[int] | None:
    """The position of the first generated token of each row."""
    start, past = facts.batch.position_start, facts.batch.past_length or 0
    keep = facts.keep
    if keep is None and facts.pads_from_ids is not None and facts.batch.pad_token_id != facts.batch.eos_token_id:
        keep = facts.pads_from_ids
    if keep is not None:
        extra = 0 if facts.total is not None and keep.shape[1] == facts.total + past and past else past
        return [int(keep[min(row, len(keep) - 1)].sum()) + start + extra for row in range(rows)]
    if facts.positions is not None:
        return [int(facts.positions.shape[1]) + start + past] * rows
    if facts.total is not None and facts.given is None:
        return [facts.total + start + past] * rows
    return None


def _shifted_alike(facts: Facts, given: IntArray, right: IntArray) -> bool:
    """Whether a row's generated tokens go on from prompt positions that are shifted by the same number, under RoPE."""
    if facts.batch.position_kind != "rope" or facts.positions is None or facts.keep is None:
        return False
    for row in range(len(given)):
        prompt, kept = facts.positions_of(row), facts.keep_of(row)
        if prompt is None or kept is None or len(kept) != len(prompt) or not kept.any():
            return False
        off = (prompt - (np.cumsum(kept) - kept) - facts.batch.position_start)[kept]
        if (off != off[0]).any() or (given[row] - right[row] != off[0]).any():
            return False
    return True
