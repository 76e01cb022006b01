"""Positions of prompts and of generated tokens."""

from __future__ import annotations

from random import Random

import numpy as np

from kev_engine.isolation.layout import pack
from tests.doctor.faults.edit import Edit, edited, fault, need
from tests.doctor.right import padded, varlen
from tests.doctor.rows import Description, Row, described, row, tree


@fault("a position reset dropped, a mask decides")
def _(random: Random) -> Edit:
    cells = row(random, least=2, pads=False)
    segment = random.randrange(1, cells.layout.num_segments)
    children = {k for k in range(cells.layout.num_segments) if segment in cells.layout.lineage(k)}
    need(children == {segment})
    start, end = cells.layout.intervals[segment]
    positions = cells.layout.position_ids.copy()
    running = positions[start - 1] + 1 + np.arange(end - start)
    need(running[0] != positions[start])
    positions[start:end] = running
    return edited(cells.batch(), "POS_NOT_RESET", position_ids=positions.tolist())


@fault("a position reset dropped, positions decide")
def _(random: Random) -> Edit:
    layout = tree(random, 2, flat=True)
    start, end = layout.intervals[random.randrange(1, layout.num_segments)]
    positions = layout.position_ids.copy()
    positions[start:end] = positions[start - 1] + 1 + np.arange(end - start)
    return edited(described(layout, consumer="hf"), "POS_NOT_RESET", position_ids=positions.tolist())


@fault("a position reset dropped, `cu_seqlens` decide")
def _(random: Random) -> Edit:
    layout, batch = varlen(random, 2)
    start, end = layout.intervals[random.randrange(1, layout.num_segments)]
    positions = layout.position_ids.copy()
    positions[start:end] = positions[start - 1] + 1 + np.arange(end - start)
    return edited(batch, "POS_NOT_RESET", position_ids=positions.tolist())


@fault("positions counted from 1")
def _(random: Random) -> Edit:
    cells = row(random, pads=False)
    return edited(cells.batch(), "POS_START", position_ids=(cells.layout.position_ids + random.randint(1, 4)).tolist())


def stretch(random: Random, cells: Row, longer_than: int) -> tuple[int, int]:
    """A segment of more tokens than that, none of them padding: its start and end."""
    long = [(start, end) for start, end in cells.layout.intervals if end - start > longer_than and cells.live[start]]
    need(long)
    return random.choice(long)


@fault("a position that stands still")
def _(random: Random) -> Edit:
    cells = row(random)
    start, end = stretch(random, cells, 2)
    positions = cells.layout.position_ids.copy()
    positions[start + 1 : end] = positions[start + 1]
    return edited(cells.batch(), "POS_FROZEN", position_ids=positions.tolist())


@fault("a jump inside a segment")
def _(random: Random) -> Edit:
    cells = row(random)
    start, end = stretch(random, cells, 1)
    positions = cells.layout.position_ids.copy()
    positions[random.randrange(start + 1, end) : end] += random.choice((1, 5))
    return edited(cells.batch(), "BOUNDARY_CONFLICT", position_ids=positions.tolist())


@fault("all-ones mask beside restarted positions")
def _(random: Random) -> Edit:
    layout = tree(random, 2, flat=True)
    ones = {"ones": [1, layout.num_tokens]}
    return edited(described(layout, consumer="hf"), "CROSS_SEGMENT_LEAK", attention_mask=ones)


@fault("positions of another length")
def _(random: Random) -> Edit:
    if random.random() < 0.5:
        cells = row(random)
        batch, positions = cells.batch(), cells.layout.position_ids.tolist()
    else:
        layout, batch = varlen(random)
        positions = layout.position_ids.tolist()
        need(layout.num_tokens > 1)
    wrong = random.choice((positions[:-1], [*positions, positions[-1] + 1]))
    return edited(batch, "POS_LENGTH", position_ids=wrong)


@fault("three axes of positions taken for rows")
def _(random: Random) -> Edit:
    layout = tree(random, flat=True)
    line = layout.position_ids.tolist()
    batch = described(layout, consumer="hf", position_ids=[[line], [line], [line]])
    if random.random() < 0.5:
        return edited(batch, "POS_RANK", position_ids=[line, line, line])
    need(layout.num_tokens > 1)
    return edited(batch, "POS_RANK", position_ids=[[line, line, line]])


@fault("a tail of zero positions")
def _(random: Random) -> Edit:
    layout = tree(random, 2, flat=True)
    pad = random.randint(2, 4)
    layout = pack((*layout.lengths, pad))
    need(layout.lengths[-2] > 1)
    batch = described(layout, pad_segments=[layout.num_segments - 1], consumer="hf")
    return edited(batch, "PSEUDO_SEGMENTS", position_ids=[*layout.position_ids.tolist()[:-pad], *[0] * pad])


@fault("a continuation that starts again")
def _(random: Random) -> Edit:
    past, length = random.randint(1, 6), random.randint(1, 4)
    batch = {"input_ids": [[7] * length], "past_length": past, "consumer": "hf",
             "position_ids": [list(range(past, past + length))]}
    return edited(batch, "POS_START", position_ids=[list(range(length))])


@fault("left padding counted, learned positions")
def _(random: Random) -> Edit:
    return left_counted(random, {"position_kind": "absolute"})


@fault("left padding counted, rotary positions")
def _(random: Random) -> Edit:
    return left_counted(random, random.choice(({"position_kind": "rope"}, {})))


def left_counted(random: Random, kind: Description) -> Edit:
    keep, batch = padded(random, "left")
    need(not keep.all())
    return edited(batch | kind, "POS_LEFT_PAD", position_ids=[list(range(keep.shape[1]))] * len(keep))


@fault("padding inside a text counted")
def _(random: Random) -> Edit:
    width = random.randint(3, 6)
    hole = random.randint(1, width - 2)
    keep = [int(token != hole) for token in range(width)]
    right = [token - (token > hole) for token in range(width)]
    batch = {"attention_mask": [keep], "position_ids": [right], "consumer": "hf"}
    return edited(batch, "POS_COUNTS_PADS", position_ids=[list(range(width))])


def decoding(random: Random) -> tuple[list[int], int, Description]:
    keep, batch = padded(random, "left", 2)
    need(not keep.all())
    sizes = keep.sum(axis=1).tolist()
    return sizes, keep.shape[1], batch | {"decode_positions": [[size, size + 1] for size in sizes]}


@fault("one decode position for all rows")
def _(random: Random) -> Edit:
    sizes, width, batch = decoding(random)
    return edited(batch, "POS_SHARED_ACROSS_ROWS", decode_positions=[[width, width + 1]] * len(sizes))


@fault("decoding that counts the padding")
def _(random: Random) -> Edit:
    sizes, width, batch = decoding(random)
    wrong = [[width, width + 1] if size < width else [size, size + 1] for size in sizes]
    # Where each row is then given the same line, it is that line which is told.
    return edited(batch, "POS_COUNTS_PADS", "POS_SHARED_ACROSS_ROWS", decode_positions=wrong)


@fault("decoding that stands still")
def _(random: Random) -> Edit:
    sizes, _width, batch = decoding(random)
    return edited(batch, "POS_FROZEN", decode_positions=[[size, size] for size in sizes])
