"""The tokens of the examined row as the strip gets them: what differs from token to token, the rest as runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from app.doctor_view import DoctorView
from app.render.doctor import drawn
from app.render.text import to_json
from kev_engine.doctor.batch import Batch
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.layouts import Segmentation

MOST_LISTED = 65_536


def doctor_strip(view: DoctorView) -> str:
    """Ids, texts, bytes where they are not the text's own, offsets, roles, positions as runs, split characters."""
    facts = None if view.report is None else view.report.facts
    total = None if facts is None else facts.total
    if facts is None or total is None or total > MOST_LISTED:
        return to_json({"count": 0})
    batch = facts.batch
    judged = drawn(view)
    row = 0 if judged is None else judged.row
    strip: dict[str, object] = {"count": total, "split": _split(batch, total)}
    if facts.ids is not None and facts.ids.shape[1] == total:
        strip["ids"] = facts.ids[min(row, len(facts.ids) - 1)].tolist()
    for name, values in (("texts", batch.tokens), ("offsets", batch.token_offsets), ("roles", batch.token_roles)):
        if values is not None and len(values) == total and row == 0:
            strip[name] = list(values)
    if batch.token_bytes is not None and len(batch.token_bytes) == total and row == 0:
        strip["bytes"] = [data.hex(" ") for data in batch.token_bytes]
        strip.setdefault("texts", [data.decode("utf-8", "replace") for data in batch.token_bytes])
    given = facts.positions_of(row)
    if given is not None and len(given) == total:
        strip["positions"] = runs(given)
        right = _right(facts, total)
        if right is not None and not np.array_equal(right, given):
            strip["right"] = runs(right)
    return to_json(strip)


def runs(positions: IntArray) -> list[list[int]]:
    """[first token, its position] of each stretch in which positions rise by one."""
    cuts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist()]
    return [[cut, int(positions[cut])] for cut in cuts]


def _right(facts: Facts, total: int) -> IntArray | None:
    """The positions that follow from the segments that were given."""
    segments: Segmentation | None = facts.given
    if segments is None or segments.num_tokens != total:
        return None
    start = facts.batch.past_length or facts.batch.position_start if len(segments.intervals) == 1 else (
        facts.batch.position_start)
    return segments.layout.position_ids + start


def _split(batch: Batch, total: int) -> list[int]:
    """Tokens that hold only a part of a character, by their bytes or by the mark that stands for broken ones."""
    data = batch.token_bytes
    if data is not None and len(data) == total:
        return split_tokens(data)
    return [place for place, text in enumerate(batch.tokens or ()) if "�" in text]


def split_tokens(data: Sequence[bytes]) -> list[int]:
    """The tokens that hold only a part of a UTF-8 character, or bytes that belong to none."""
    whole = b"".join(data)
    borders, broken, place = {len(whole)}, set(), 0
    while place < len(whole):
        borders.add(place)
        size = _size(whole[place])
        tail = whole[place + 1 : place + size]
        if size and len(tail) == size - 1 and all(byte & 0xC0 == 0x80 for byte in tail):
            place += size
        else:
            broken.add(place)
            place += 1
    ends = list(accumulate((len(piece) for piece in data), initial=0))
    return [index for index, (start, end) in enumerate(pairwise(ends)) if start < end and (
        start not in borders or end not in borders or not broken.isdisjoint(range(start, end)))]


def _size(lead: int) -> int:
    """How many bytes a character has that begins so; 0 where none does."""
    if lead < 0x80:
        return 1
    return 0 if lead < 0xC2 or lead > 0xF4 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
