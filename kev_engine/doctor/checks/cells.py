"""Who may read whom: leaks, hidden keys, empty rows, causality, alignment, windows, and masks turned inside out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kev_engine.doctor import consumer as consumers
from kev_engine.doctor.cells import Cells, overlay
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding, Pair
from kev_engine.doctor.judge import Judged
from kev_engine.doctor.layouts import block_borders


def check(facts: Facts) -> Iterator[Finding]:
    for judged in facts.judged:
        yield from _inverted(facts, judged)
        yield from _leaks(facts, judged)
        yield from _future(facts, judged)
        yield from _hidden(facts, judged)
        yield from _window(facts, judged)
        yield from _corner(facts, judged)
        yield from _empty(facts, judged)
        yield from _forbidden(facts, judged)


def _named(judged: Judged, cells: Cells) -> dict[str, object]:
    """The first cell in words, and whom the consumer obeyed."""
    query, key = cells.first() or (0, 0)
    owner = judged.segments.owner if judged.segments is not None else None
    return {
        "row": judged.row, "query": query, "key": key, "source": judged.source,
        "reader": None if owner is None else int(owner[query]), "read": None if owner is None else int(owner[key]),
    }


def _found(code: str, judged: Judged, cells: Cells, **more: object) -> Finding:
    return Finding(code, count=cells.count, indexes=tuple(cells.rows), facts=_named(judged, cells) | more)


def _specified(facts: Facts) -> bool:
    """Whether the segments say what is right; with `forbid` the rectangles alone do."""
    return facts.batch.forbid is None


def _leaks(facts: Facts, judged: Judged) -> Iterator[Finding]:
    leak = judged.marks.select("actual", without="related", rows=judged.live)
    if not leak.count or not _specified(facts) or judged.segments is None:
        return
    owner = judged.segments.owner
    pairs, complete = leak.pairs(owner, owner)
    borders = _moved_borders(judged)
    only_outside = {pair[1] for pair in pairs} == {-1}
    yield Finding(
        "CROSS_SEGMENT_LEAK", count=leak.count, indexes=tuple(leak.rows), pairs=tuple(Pair(*pair) for pair in pairs),
        variant="shifted" if borders else "outside" if only_outside else "",
        facts=_named(judged, leak) | borders | {"num_pairs": len(pairs), "some": "" if complete else "at least "},
    )


def _moved_borders(judged: Judged) -> dict[str, object]:
    """The borders that differ, as they are and as they should be, where the cells are clean blocks of as many segments
    as were meant; else nothing."""
    segments = judged.segments
    if segments is None or -1 in segments.names or any(parent is not None for parent in segments.layout.parents):
        return {}
    found = block_borders(judged.actual)
    right = segments.layout.cu_seqlens.tolist()
    if found is None or len(found) != len(right):
        return {}
    moved = [(is_, should) for is_, should in zip(found, right, strict=True) if is_ != should]
    return {"found_borders": [is_ for is_, _ in moved], "borders": [should for _, should in moved]}


def _late(judged: Judged) -> Cells:
    """Cells on later keys of the reader's own segment that will be allowed."""
    return judged.marks.select("actual", "own", without="causal", rows=judged.live)


def _future(facts: Facts, judged: Judged) -> Iterator[Finding]:
    batch = facts.batch
    if not batch.want_causal or not _specified(facts):
        return
    late = _late(judged)
    corner = _corner_cells(facts, judged) if batch.cu_seqlens_q is not None else None
    if not late.count or (corner is not None and corner.same(judged.actual)):
        return
    yield _found("LEAK_FUTURE", judged, late)
    maskless = batch.attention_mask is None and batch.mask_planes is None
    mask = batch.attention_mask
    broadcast = mask is not None and len(mask.shape) == 4 and mask.shape[-2] == 1
    everything = judged.marks.equal("actual", "all")
    if broadcast or (maskless and (everything or batch.is_causal is False or batch.consumer == "eager")):
        yield Finding("CAUSAL_MISSING", count=late.count, indexes=tuple(late.rows),
                      variant="eager" if batch.consumer == "eager" else "", facts=_named(judged, late))


def _hidden(facts: Facts, judged: Judged) -> Iterator[Finding]:
    if not _specified(facts):
        return
    hidden = judged.marks.select("should", without="actual", rows=judged.live)
    if not hidden.count or _window_fault(facts, judged) == "WINDOW_OFF_BY_ONE":
        return
    yield _found("HIDDEN_KEYS", judged, hidden)
    by_flag = facts.batch.is_causal is True and judged.source == "is_causal"
    if not facts.batch.want_causal and (by_flag or _only_later(judged, hidden)):
        yield Finding("CAUSAL_UNWANTED", count=hidden.count, indexes=tuple(hidden.rows), facts=_named(judged, hidden))


def _only_later(judged: Judged, hidden: Cells) -> bool:
    """Whether all hidden cells lie on later keys, and most later keys are hidden."""
    place = hidden.run_rows + hidden.num_keys - hidden.num_queries
    return bool((hidden.run_firsts > place).all()) and hidden.count >= _late(judged).count


def _window_fault(facts: Facts, judged: Judged) -> str | None:
    """Which window the mask has instead of the right one, judged among the keys a reader may have at all."""
    window = facts.window
    if window is None or not _specified(facts):
        return None
    marks = judged.marks
    if marks.equal("actual", "should", judged.live, "plain"):
        return None
    if marks.equal("actual", "plain", judged.live, "plain"):
        return "WINDOW_IGNORED"
    for other in (window - 1, window + 1) if not _late(judged).count else ():
        near = _with_window(facts, judged, other)
        both = overlay(marks.num_queries, marks.num_keys, {
            "actual": judged.actual, "near": near, "plain": marks.select("plain")})
        if both.equal("actual", "near", judged.live, "plain"):
            return "WINDOW_OFF_BY_ONE"
    too_far = marks.select("actual", "plain", without="should", rows=judged.live)
    return "WINDOW_IGNORED.partly" if too_far.count else None


def _with_window(facts: Facts, judged: Judged, window: int) -> Cells:
    if window < 1:
        return Cells.nothing(judged.actual.num_queries, judged.actual.num_keys)
    if judged.segments is None:
        return consumers.rectangle(judged.actual.num_queries, judged.actual.num_keys, window=window,
                                   causal=facts.batch.want_causal)
    found = judged.segments.visible(window) if facts.batch.want_causal else judged.segments.related(window)
    keep = facts.keep_of(judged.row)
    return found if keep is None else consumers.columns(found, keep)


def _window(facts: Facts, judged: Judged) -> Iterator[Finding]:
    fault = _window_fault(facts, judged)
    if fault is None:
        return
    marks = judged.marks
    far = marks.select("actual", "plain", without="should", rows=judged.live)
    missing = marks.select("should", without="actual", rows=judged.live)
    code, _, variant = fault.partition(".")
    wrong = far if variant or not missing.count else missing if not far.count else None
    count = far.count + missing.count if wrong is None else wrong.count
    rows = sorted({*far.rows, *missing.rows}) if wrong is None else wrong.rows
    first = _named(judged, far if far.count else missing)
    yield Finding(code, count=count, indexes=tuple(rows), variant=variant,
                  facts=first | {"window": facts.window, "width": (facts.window or 0) + (1 if far.count else -1)})


def _corner_cells(facts: Facts, judged: Judged) -> Cells | None:
    """The cells of the same batch aligned to the top left, where that differs."""
    queries, keys = judged.actual.num_queries, judged.actual.num_keys
    batch = facts.batch
    if not facts.rectangular or queries == keys or not batch.want_causal:
        return None
    if batch.cu_seqlens_q is not None and batch.cu_seqlens_k is not None:
        return consumers.varlen_cells(batch.cu_seqlens_q, batch.cu_seqlens_k, queries, keys, top_left=True)
    return consumers.rectangle(queries, keys, top_left=True)


def _corner(facts: Facts, judged: Judged) -> Iterator[Finding]:
    corner = _corner_cells(facts, judged)
    if corner is None or not corner.same(judged.actual):
        return
    marks = judged.marks
    missing, extra = marks.select("should", without="actual"), marks.select("actual", without="should")
    if missing.count or extra.count:
        rows = sorted({*missing.rows, *extra.rows})
        yield Finding("ALIGN_TOP_LEFT", count=missing.count + extra.count, indexes=tuple(rows),
                      facts=_named(judged, missing if missing.count else extra) | {
                          "queries": marks.num_queries, "keys": marks.num_keys, "library": facts.batch.library})


def _empty(facts: Facts, judged: Judged) -> Iterator[Finding]:
    empty = np.ones(judged.actual.num_queries, dtype=np.bool_)
    empty[judged.actual.run_rows] = False
    bad = empty & judged.live & ~judged.by_design
    if bad.any():
        rows = tuple(np.flatnonzero(bad).tolist())
        yield Finding("ROW_EMPTY", indexes=rows, facts={"row": judged.row, "query": rows[0]})
    elif empty.any():
        rows = tuple(np.flatnonzero(empty).tolist())
        yield Finding("ROW_EMPTY", "note", indexes=rows, variant="kernel" if judged.by_design.any() else "padding",
                      facts={"row": judged.row, "query": rows[0]})


def _forbidden(facts: Facts, judged: Judged) -> Iterator[Finding]:
    if not facts.batch.forbid:
        return
    bad = judged.marks.select("actual", without="should")
    if bad.count:
        yield _found("FORBIDDEN_CELL", judged, bad)


def _inverted(facts: Facts, judged: Judged) -> Iterator[Finding]:
    mask = facts.dense_mask
    if mask is None or not _specified(facts) or not facts.fits(mask):
        return
    if judged.marks.opposite("actual", "should", judged.live):
        reads = {"keep": "true or 1 = may attend", "block": "true = hidden",
                 "additive": "0 = may attend, very negative = hidden"}[facts.meaning]
        yield Finding("MASK_INVERTED", facts={
            "reads": reads, "consumer": facts.batch.consumer or "the consumer", "row": judged.row})
