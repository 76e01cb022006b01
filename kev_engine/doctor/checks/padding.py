"""Padding: its side, its mask, and the column whose logits are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kev_engine.doctor.cells import BoolArray
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding


def check(facts: Facts) -> Iterator[Finding]:
    yield from _side(facts)
    yield from _pads_kept(facts)
    yield from _mask_of_ids(facts)
    yield from _labels_of_eos(facts)
    yield from _read_column(facts)


def _like(facts: Facts, keep: BoolArray) -> Any:
    rows = keep.astype(int).tolist()
    ids = facts.batch.input_ids
    return rows[0] if ids is not None and ids.ndim == 1 else rows


def _known_keep(facts: Facts) -> BoolArray | None:
    """The real tokens, by the mask or, without one, by the pad ids."""
    if facts.keep is not None and not facts.numbers_segments:
        return facts.keep
    return facts.pads_from_ids if facts.keep is None else None


def _side(facts: Facts) -> Iterator[Finding]:
    batch = facts.batch
    if batch.task != "generate":
        return
    keep = _known_keep(facts)
    padded = keep is None or not keep.all()
    on_right = keep is not None and bool((~keep[:, -1] & keep.any(axis=1)).any())
    if (batch.padding_side == "right" and padded) or on_right:
        yield Finding("PAD_SIDE", found="right", expected="left")


def _pads_kept(facts: Facts) -> Iterator[Finding]:
    """A row mask that keeps the segments of padding and nothing else."""
    keep, given, pads = facts.keep, facts.given, facts.batch.pad_segments
    if keep is None or given is None or not pads or facts.numbers_segments or keep.shape != (1, given.num_tokens):
        return
    if (keep[0] == np.isin(given.owner, pads)).all() and not keep.all():
        right = (~keep).astype(int).tolist()
        mask = facts.batch.attention_mask
        expected = right if mask is not None and len(mask.shape) == 2 else right[0]
        yield Finding("MASK_INVERTED", expected=expected, variant="padding")


def _runs_of_pads(facts: Facts) -> tuple[BoolArray, str] | None:
    """The keep mask that follows from ids, and the side the pads stand on; None where no pad run is seen."""
    ids, batch = facts.ids, facts.batch
    if ids is None or batch.pad_token_id is None or batch.pad_token_id == batch.bos_token_id:
        return None
    is_pad = ids == batch.pad_token_id
    left = ~np.logical_and.accumulate(is_pad, axis=1)
    right = ~np.logical_and.accumulate(is_pad[:, ::-1], axis=1)[:, ::-1]
    side = batch.padding_side or ("left" if not left.all() else "right")
    keep = left if side == "left" else right
    return None if keep.all() else (keep, side)


def _mask_of_ids(facts: Facts) -> Iterator[Finding]:
    batch, ids, given = facts.batch, facts.ids, facts.keep
    if ids is None or batch.pad_token_id is None:
        return
    is_pad = ids == batch.pad_token_id
    same = batch.pad_token_id == batch.eos_token_id
    if given is not None and given.shape == ids.shape and not facts.numbers_segments:
        right = facts.pads_from_ids
        assert right is not None
        if same and (~given & right & is_pad).any():
            wrong = ~given & right & is_pad
            yield Finding("PAD_IS_EOS", expected=_like(facts, right), indexes=_places(wrong),
                          facts={"pad": batch.pad_token_id})
            return
        if (given == ~right).all() and not right.all():
            yield Finding("MASK_INVERTED", expected=_like(facts, right), variant="padding")
            return
        found = _runs_of_pads(facts)
        if found is not None and not same and _matters(facts, found[1]) and (given & ~found[0]).any():
            yield Finding("PAD_MASK_MISSING", expected=_like(facts, found[0]), indexes=_places(given & ~found[0]),
                          variant="ones", facts={"pad": batch.pad_token_id})
        return
    if facts.dense_mask is not None and not same:
        yield from _read_through(facts)
    if batch.attention_mask is not None or batch.mask_planes or batch.consumer == "flash_varlen":
        return
    found = _runs_of_pads(facts)
    if found is None or not _matters(facts, found[1]) or _covered(facts, ~found[0]):
        return
    yield Finding("PAD_MASK_MISSING", expected=_like(facts, found[0]), indexes=_places(~found[0]),
                  facts={"pad": batch.pad_token_id, "side": found[1]})


def _read_through(facts: Facts) -> Iterator[Finding]:
    """Padding, known by its ids, that a mask of cells lets a real token read."""
    keep = facts.real
    if keep is None or facts.given is not None:
        return
    read = np.zeros_like(keep)
    for judged in facts.judged:
        if judged.actual.num_keys == keep.shape[1]:
            seen = judged.marks.select("actual", rows=judged.live)
            line = keep[min(judged.row, len(keep) - 1)]
            read[min(judged.row, len(keep) - 1)] |= ~line & seen.columns
    if read.any():
        yield Finding("PAD_MASK_MISSING", expected=_like(facts, keep), indexes=_places(read), variant="ones",
                      facts={"pad": facts.batch.pad_token_id})


def _places(marks: BoolArray) -> tuple[int, ...]:
    return tuple(int(place) for place in np.flatnonzero(marks.any(axis=0)))


def _matters(facts: Facts, side: str) -> bool:
    """Pads on the right are read by nobody before them, unless the model reads both ways or goes on generating."""
    return side == "left" or facts.batch.task == "generate" or not facts.batch.want_causal


def _covered(facts: Facts, pads: BoolArray) -> bool:
    """Whether the segments already say that these tokens are padding, or another array keeps them apart."""
    if facts.given is None or len(pads) != 1:
        return facts.cu is not None
    owner = facts.given.owner
    return bool((np.isin(owner, facts.batch.pad_segments) | (owner < 0))[pads[0]].all())


def _labels_of_eos(facts: Facts) -> Iterator[Finding]:
    """pad = eos, and labels masked by comparing ids: no end of an answer is ever learnt."""
    batch, ids, labels = facts.batch, facts.ids, facts.batch.labels
    if labels is None or ids is None or batch.pad_token_id is None or batch.pad_token_id != batch.eos_token_id:
        return
    targets = np.atleast_2d(labels)
    if targets.shape != ids.shape or facts.keep is None or facts.keep.shape != ids.shape:
        return
    step = 1 if batch.labels_shifted else 0
    of_token = np.full(ids.shape, -100, dtype=np.int64)
    of_token[:, step:] = targets[:, : ids.shape[1] - step]
    is_eos = facts.keep & (ids == batch.eos_token_id)
    is_eos[:, 0] = False
    learnt = of_token != -100
    before = np.zeros_like(learnt)
    before[:, 1:] = learnt[:, :-1]
    if is_eos.any() and not (learnt & is_eos).any() and (before & is_eos).any():
        right = targets.copy()
        for row, place in zip(*np.nonzero(before & is_eos), strict=True):
            right[row, place - step] = ids[row, place]
        expected = right.tolist()
        yield Finding("PAD_IS_EOS", expected=expected[0] if labels.ndim == 1 else expected, variant="labels",
                      indexes=_places(before & is_eos), facts={"pad": batch.pad_token_id})


def _read_column(facts: Facts) -> Iterator[Finding]:
    batch, read = facts.batch, facts.batch.read_index
    if read is None:
        return
    ends = _segment_ends(facts)
    if ends is not None and isinstance(read, tuple) and len(read) == len(ends):
        last, width = ends, facts.total or 0
    else:
        keep = _known_keep(facts)
        if keep is None and facts.total is not None and facts.given is None and facts.ids is not None:
            keep = np.ones((facts.num_rows, facts.total), dtype=np.bool_)
        if keep is None or not keep.any(axis=1).all():
            return
        width = keep.shape[1]
        last = [int(np.flatnonzero(line)[-1]) for line in keep]
    given = list(read) if isinstance(read, tuple) else [read] * len(last)
    places = [index if 0 <= index < width else index + width if -width <= index < 0 else None for index in given]
    if places == last:
        return
    as_list = isinstance(read, tuple) or len(last) > 1
    yield Finding("LAST_TOKEN" if batch.task == "score" else "READ_INDEX", found=list(given) if as_list else read,
                  expected=last if as_list else last[0], facts={"width": width})


def _segment_ends(facts: Facts) -> list[int] | None:
    """The last token of each segment of a packed row."""
    if facts.given is None or facts.num_rows != 1:
        return None
    pads = facts.batch.pad_segments
    return [end - 1 for name, (_, end) in facts.given.intervals.items() if name not in pads]
