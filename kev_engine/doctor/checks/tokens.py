"""Tokens: BOS, special tokens and template markers, two ways of tokenizing, characters cut by a border, lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kev_engine.doctor.cells import BoolArray
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.finding import Finding


def check(facts: Facts) -> Iterator[Finding]:
    yield from _bos(facts)
    yield from _paths(facts)
    batch = facts.batch
    for named, code in ((batch.special_ids, "SPECIAL_SPLIT"), (batch.template_markers, "TEMPLATE_TOKENIZER_MISMATCH")):
        for text, ids in (named or {}).items():
            if len(ids) != 1:
                yield Finding(code, found=len(ids), expected=1, facts={"text": text, "ids": list(ids)})
    yield from _characters(facts)
    yield from _lengths(facts)


# ---------------------------------------------------------------- BOS

def _bos(facts: Facts) -> Iterator[Finding]:
    batch, ids, bos = facts.batch, facts.ids, facts.batch.bos_token_id
    if ids is None:
        if batch.text_starts_with_bos and batch.add_special_tokens:
            yield Finding("BOS_DOUBLE", variant="text")
        elif batch.text_starts_with_bos is False and batch.add_special_tokens is False and bos is not None:
            yield Finding("BOS_MISSING", variant="text")
        return
    if bos is None:
        if batch.text_starts_with_bos and batch.add_special_tokens:
            yield Finding("BOS_DOUBLE", variant="text")
        return
    for row, line in enumerate(ids):
        yield from _bos_in_row(facts, row, line, bos)


def _bos_in_row(facts: Facts, row: int, line: IntArray, bos: int) -> Iterator[Finding]:
    real = _real(facts, row)
    starts = _starts(facts, row, real)
    is_bos = (line == bos) & real
    pairs = [place for place in np.flatnonzero(is_bos[1:] & is_bos[:-1]).tolist() if place + 1 not in starts]
    double = sorted({place for pair in pairs for place in (pair, pair + 1)})
    told = {"row": row, "bos": bos}
    if double:
        yield Finding("BOS_DOUBLE", indexes=tuple(double), facts=told)
    if bos != facts.batch.eos_token_id:
        packed = facts.segments is not None and facts.num_rows == 1
        middle = [place for place in np.flatnonzero(is_bos).tolist()
                  if place not in starts and place not in double
                  and (packed or not _ends_before(facts, line, place))]
        if middle:
            yield Finding("BOS_MID", indexes=tuple(middle), facts=told)
    missing = _missing(facts, line, bos, starts)
    if missing:
        yield Finding("BOS_MISSING", indexes=tuple(missing), facts=told)


def _ends_before(facts: Facts, line: IntArray, place: int) -> bool:
    """Whether an EOS stands before this place: then a new document may well start here, though nobody said so."""
    eos = facts.batch.eos_token_id
    return eos is not None and place > 0 and int(line[place - 1]) == eos


def _real(facts: Facts, row: int) -> BoolArray:
    """`[T]`: the tokens of a row that are not padding."""
    assert facts.ids is not None
    keep = facts.keep_of(row)
    length = facts.ids.shape[1]
    if keep is None or len(keep) != length or facts.numbers_segments:
        pads = facts.pads_from_ids if facts.batch.pad_token_id != facts.batch.bos_token_id else None
        keep = np.ones(length, dtype=np.bool_) if pads is None else pads[row]
    if facts.given is not None and facts.given.num_tokens == length:
        keep = keep & ~np.isin(facts.given.owner, facts.batch.pad_segments)
    return keep


def _starts(facts: Facts, row: int, real: BoolArray) -> list[int]:
    """Where a segment starts: each given or found one, else the first real token of the row."""
    segments = facts.segments
    if segments is not None and (facts.num_rows == 1 or facts.given is not None) and segments.num_tokens == len(real):
        starts = {start for start, _ in segments.intervals.values()}
        if facts.given is None:
            starts |= set(np.flatnonzero(real)[:1].tolist())
        return sorted(starts)
    return [int(place) for place in np.flatnonzero(real)[:1]]


def _missing(facts: Facts, line: IntArray, bos: int, starts: Sequence[int]) -> list[int]:
    """Segment starts without BOS: of a child of a shared context and behind a cache none is due."""
    batch = facts.batch
    if batch.past_length or bos == batch.pad_token_id:
        return []
    due = list(starts)
    if facts.given is not None:
        parents = batch.parents or (None,) * len(facts.given.names)
        due = [start for name, (start, _) in facts.given.intervals.items()
               if parents[name] is None and name not in batch.pad_segments]
    # A first token that is EOS plays the part of BOS in models that have only one of them.
    return [start for start in due if int(line[start]) != bos and int(line[start]) != batch.eos_token_id]


# ---------------------------------------------------------------- tokenizing

def _paths(facts: Facts) -> Iterator[Finding]:
    paths = facts.batch.paths
    if not paths or len(paths) < 2:
        return
    if set(paths) == {"prompt", "full"}:
        prompt, full = paths["prompt"], paths["full"]
        if full[: len(prompt)] != prompt:
            place = _first_difference(prompt, full)
            yield Finding("BOUNDARY_MERGE", indexes=(place,), facts={"place": place})
        return
    names = list(paths)
    for name in names[1:]:
        if paths[name] != paths[names[0]]:
            place = _first_difference(paths[names[0]], paths[name])
            yield Finding("PATHS_DISAGREE", indexes=(place,), facts={"one": names[0], "other": name, "place": place})
            return


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)))


def _characters(facts: Facts) -> Iterator[Finding]:
    data, segments = facts.batch.token_bytes, facts.segments
    if data is None or segments is None or segments.num_tokens != len(data):
        return
    borders = {start for start, _ in segments.intervals.values() if start > 0}
    borders |= {end for _, end in segments.intervals.values() if end < len(data)}
    cut = [border for border in sorted(borders) if _cuts_character(data, border)]
    if cut:
        yield Finding("SPLIT_CHARACTER", "warning", indexes=tuple(cut), facts={
            "place": cut[0], "left": data[cut[0] - 1].hex(), "right": data[cut[0]].hex()})


def _cuts_character(data: Sequence[bytes], border: int) -> bool:
    """Whether the bytes before a border end in a UTF-8 character that is not complete."""
    tail = b""
    place = border
    while len(tail) < 4 and place > 0:
        place -= 1
        tail = data[place] + tail
    for size in range(1, min(3, len(tail)) + 1):
        byte = tail[-size]
        if byte & 0b1100_0000 != 0b1000_0000:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return needed > size
    return False


# ---------------------------------------------------------------- lengths

def _lengths(facts: Facts) -> Iterator[Finding]:
    batch, total = facts.batch, facts.total
    if total is None:
        return
    sizes: list[tuple[str, int]] = []
    if batch.input_ids is not None and batch.total is not None and batch.total != total:
        sizes.append(("total", batch.total))
    for key in ("special_tokens_mask", "labels"):
        array = getattr(batch, key)
        if array is not None:
            sizes.append((key, int(array.shape[-1])))
    for key in ("tokens", "token_bytes", "token_offsets", "token_roles"):
        value = getattr(batch, key)
        if value is not None:
            sizes.append((key, len(value)))
    for key, size in sizes:
        if size != total:
            yield Finding("LENGTH_MISMATCH", found=size, expected=total, facts={"key": key})
    mask = facts.row_mask
    if mask is not None:
        wanted = total + (batch.past_length or 0)
        if mask.shape[-1] not in (wanted, total if batch.past_length else wanted):
            yield Finding("LENGTH_MISMATCH", found=mask.shape[-1], expected=wanted, facts={"key": "attention_mask"})
        elif len(mask.shape) == 2 and mask.shape[0] not in (1, facts.num_rows):
            yield Finding("LENGTH_MISMATCH", found=mask.shape[0], expected=facts.num_rows, variant="rows",
                          facts={"key": "attention_mask"})
    if facts.given_end is not None and facts.given_end > total:
        key = "segments" if batch.segments is not None else "lengths"
        yield Finding("LENGTH_MISMATCH", found=facts.given_end, expected=total, facts={"key": key})
