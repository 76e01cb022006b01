"""Judged: the two sets of cells of a row, those that should be allowed and those that its consumer will allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kev_engine.doctor import consumer as consumers
from kev_engine.doctor.batch import Interval
from kev_engine.doctor.cells import BoolArray, Cells, Grid, Overlay, overlay
from kev_engine.doctor.consumer import Effective
from kev_engine.doctor.layouts import Segmentation
from kev_engine.doctor.masks import Mask

if TYPE_CHECKING:
    from kev_engine.doctor.facts import Facts


@dataclass(frozen=True, eq=False)
class Judged:
    """One row of the batch, its set of cells that should be allowed and the set that will be.

    `marks` overlays the sets `actual`, `should` (with the window), `plain` (without it), `related`, `own`,
    `causal` (related and not later, whatever the mask keeps), `all`.
    `live[q]` is true for the queries that are judged; `by_design` for those a bottom-right kernel leaves empty.
    """

    row: int
    segments: Segmentation | None
    actual: Cells
    should: Cells
    marks: Overlay | Grid
    live: BoolArray
    by_design: BoolArray
    source: str

    @property
    def expected(self) -> Cells:
        """The cells that ought to be, to look at: rows that are not judged as they are."""
        if self.live.all():
            return self.should
        judged, rest = (consumers.rows_of(cells, rows) for cells, rows in (
            (self.should, self.live), (self.actual, ~self.live)))
        return Cells.from_runs(self.should.num_queries, self.should.num_keys, *(
            np.concatenate([getattr(part, edge) for part in (judged, rest)])
            for edge in ("run_rows", "run_firsts", "run_lasts")))


def judge(facts: Facts) -> Iterator[Judged]:
    """One entry for each row, and each head that differs, whose cells are known."""
    for row in range(facts.num_rows):
        for found in effective(facts, row):
            if found.cells is not None and (entry := _compare(facts, row, found)) is not None:
                yield entry


def effective(facts: Facts, row: int) -> Iterator[Effective]:
    """What the consumer will allow in one row; more than one set where heads differ."""
    assert facts.shape is not None
    batch, mask = facts.batch, facts.batch.attention_mask
    queries, keys = facts.shape
    if batch.mask_planes:
        yield Effective(_planes(facts, batch.mask_planes), "mask_planes")
        return
    if batch.consumer == "flash_varlen" or consumers.takes_boundaries(batch, facts.keep):
        yield consumers.flash_cells(batch, queries, keys)
        return
    if facts.dense_mask is not None:
        yield from _dense(facts, row, facts.dense_mask)
        return
    positions = facts.positions_of(row)
    if mask is not None:
        keep = facts.keep_of(row)
        if facts.rectangular:
            if batch.consumer == "hf" and keep is not None and len(keep) == keys:
                yield Effective(consumers.columns(consumers.rectangle(queries, keys), keep), "attention_mask")
            return
        known = batch.consumer in ("hf", None) and keep is not None and len(keep) == keys == queries
        if known and keep is not None and not (facts.numbers_segments and (
                batch.consumer is None or facts.given is None or batch.attn_implementation == "flash_attention_2")):
            yield consumers.hf_with_keep(batch, keep, positions)
        return
    if batch.consumer == "hf" and queries == keys:
        yield consumers.hf_without_mask(batch, positions, keys)
    elif batch.consumer == "eager":
        yield Effective(Cells.everything(queries, keys), "nothing")
    elif batch.consumer == "sdpa" and batch.is_causal is not None:
        cells = consumers.rectangle(queries, keys, top_left=True) if batch.is_causal else (
            Cells.everything(queries, keys))
        yield Effective(cells, "is_causal")


def _dense(facts: Facts, row: int, mask: Mask) -> Iterator[Effective]:
    assert facts.shape is not None
    queries, keys = facts.shape
    mine = _planes_of(facts, row, mask)
    if mine is None:
        return
    first = mine.start
    if not facts.fits(mask):
        broadcast = len(mask.shape) == 4 and mask.shape[-2:] == (1, keys) and queries > 1
        if broadcast and facts.batch.consumer in ("sdpa", "eager", "mha", "hf"):
            line = mask.cells(first, lambda values: consumers.decode(values, facts.meaning))
            yield Effective(consumers.take_rows(line, np.zeros(queries, dtype=np.int64)), "attention_mask")
        return
    for plane in mask.different(mine):
        cells = facts.dense_alone if facts.dense_alone is not None else facts.mask_cells(mask, plane)
        if facts.batch.consumer == "sdpa" and facts.batch.is_causal:
            cells = consumers.meets(cells, consumers.rectangle(queries, keys, top_left=True))
        yield Effective(cells, "attention_mask")


def _planes_of(facts: Facts, row: int, mask: Mask) -> range | None:
    """The planes of one row of the batch, one or one a head; None where the leading axes fit neither rows nor heads."""
    rows, shape = facts.num_rows, mask.shape
    if len(shape) == 2:
        return range(1)
    heads = mask.planes() // shape[0]
    if len(shape) == 3 and (facts.batch.consumer == "mha" or (facts.batch.consumer == "sdpa" and rows == 1)):
        # Torch's module takes [B * heads, Q, K]; scaled_dot_product_attention sees [heads, Q, K].
        heads, rest = divmod(shape[0], rows)
        if rest or (facts.batch.num_heads not in (None, heads) and shape[0] > 1):
            return None
    elif shape[0] not in (1, rows):
        return None
    first = row * heads if mask.planes() > heads else 0
    return range(first, first + heads)


def _planes(facts: Facts, planes: tuple[Mask, ...]) -> Cells | None:
    assert facts.shape is not None
    queries, keys = facts.shape
    cells = Cells.everything(queries, keys)
    for plane in planes:
        if plane.shape[-1] != keys or (len(plane.shape) > 1 and plane.shape[-2] not in (1, queries)):
            return None
        if plane.planes() > 1:
            return None
        if len(plane.shape) == 1 or plane.shape[-2] == 1:
            cells = consumers.columns(cells, consumers.decode(plane.line(0), "additive"))
        else:
            cells = consumers.meets(cells, plane.cells(0, lambda values: consumers.decode(values, "additive")))
    return cells


def _compare(facts: Facts, row: int, effective: Effective) -> Judged | None:
    assert facts.shape is not None
    assert effective.cells is not None
    queries, keys = facts.shape
    batch, window = facts.batch, facts.window
    by_design = np.zeros(queries, dtype=np.bool_)
    live = np.ones(queries, dtype=np.bool_)
    segments = None
    everything = Cells.everything(queries, keys)
    if facts.paired and batch.cu_seqlens_q is not None and batch.cu_seqlens_k is not None:
        cu_q, cu_k = batch.cu_seqlens_q, batch.cu_seqlens_k
        if len(cu_q) != len(cu_k) or not (
                consumers.usable_cu(cu_q, queries) and consumers.usable_cu(cu_k, keys)):
            return None
        should = consumers.varlen_cells(cu_q, cu_k, queries, keys, causal=batch.want_causal)
        plain, own, related, causal = should, everything, everything, should
        if cu_q[-1] != cu_k[-1]:
            for (q0, q1), (k0, k1) in zip(_steps(cu_q), _steps(cu_k), strict=True):
                by_design[q0 : q0 + max(0, (q1 - q0) - (k1 - k0))] = True
    elif facts.rectangular:
        plain = consumers.rectangle(queries, keys, causal=batch.want_causal)
        should = consumers.rectangle(queries, keys, causal=batch.want_causal, window=window)
        own = related = everything
        causal = consumers.rectangle(queries, keys)
        by_design[: max(0, queries - keys)] = True
        keep = facts.keep_of(row) if facts.dense_mask is None else facts.cached_pads(row, effective.cells)
        if keep is not None and len(keep) == keys:
            # What is cached may be padding; the tokens that come now are none.
            keep = keep | (np.arange(keys) >= keys - queries)
            should, plain = consumers.columns(should, keep), consumers.columns(plain, keep)
    else:
        segments = facts.segments_of(row, effective.cells)
        if segments.num_tokens != keys:
            return None
        owner = segments.owner
        related, own = segments.related(), segments.own()
        causal = segments.visible()
        plain = causal if batch.want_causal else related
        should = plain if window is None else (
            segments.visible(window) if batch.want_causal else _both_ways(segments, window, effective.cells))
        live = (owner >= 0) & ~np.isin(owner, batch.pad_segments) if facts.given is not None else owner >= 0
        keep = facts.real_of(row)
        if keep is not None and len(keep) == keys:
            live &= keep
            should, plain = consumers.columns(should, keep), consumers.columns(plain, keep)
    if batch.forbid is not None:
        # Then the rectangles alone say what is wrong.
        both = {"actual": effective.cells, "forbidden": _rectangles(batch.forbid, queries, keys)}
        should = overlay(queries, keys, both).select("actual", without="forbidden")
    marks = overlay(queries, keys, {
        "actual": effective.cells, "should": should, "plain": plain, "related": related, "own": own,
        "causal": causal, "all": everything,
    })
    return Judged(row, segments, effective.cells, should, marks, live, by_design, effective.source)


def _both_ways(segments: Segmentation, window: int, actual: Cells) -> Cells:
    """The window of a model that reads both ways: on both sides of the query where the mask has it so."""
    rows = np.arange(segments.num_tokens)
    near = Cells.from_runs(len(rows), len(rows), rows, rows - window + 1, rows + window)
    both = consumers.meets(segments.related(), near)
    return both if consumers.meets(actual, near).same(actual) else segments.related(window)


def _rectangles(forbid: Sequence[tuple[Interval, Interval]], queries: int, keys: int) -> Cells:
    """The cells of these rectangles."""
    spans = [np.arange(min(q0, queries), min(q1, queries)) for (q0, q1), _ in forbid]
    sizes = [len(span) for span in spans]
    firsts, lasts = (np.repeat([interval[edge] for _, interval in forbid], sizes) for edge in (0, 1))
    rows = np.concatenate([*spans, np.zeros(0, dtype=np.int64)])
    return Cells.from_runs(queries, keys, rows, firsts.astype(np.int64), lasts.astype(np.int64))


def _steps(cu: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(pairwise(cu))
