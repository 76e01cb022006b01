"""Padding: its side, its mask, and the column that is read."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.doctor.faults.edit import Edit, edited, fault, need
from tests.doctor.right import padded


@fault("right padding before generation")
def _(random: Random) -> Edit:
    keep, batch = padded(random, "left")
    need(not keep.all())
    if random.random() < 0.5:
        return edited(batch, "PAD_SIDE", padding_side="right")
    mirrored = {key: [line[::-1] for line in batch[key]] for key in ("attention_mask", "input_ids")}
    positions = np.where(keep[:, ::-1], np.cumsum(keep[:, ::-1], axis=1) - 1, 1).tolist()
    return edited(batch, "PAD_SIDE", **mirrored, position_ids=positions)


@fault("padding without a mask")
def _(random: Random) -> Edit:
    keep, batch = padded(random, "left")
    need(not keep.all())
    return edited(batch, "PAD_MASK_MISSING", attention_mask=random.choice((None, np.ones_like(keep, int).tolist())))


@fault("padding marked with 1")
def _(random: Random) -> Edit:
    keep, batch = padded(random)
    need(not keep.all())
    return edited(batch, "MASK_INVERTED", attention_mask=(~keep).astype(int).tolist())


@fault("a mask made by comparing ids, pad = eos")
def _(random: Random) -> Edit:
    _keep, batch = padded(random, "left")
    ids = np.array(batch["input_ids"])
    ids[:, -1] = 0
    right = batch | {"input_ids": ids.tolist(), "eos_token_id": 0}
    return edited(right, "PAD_IS_EOS", attention_mask=(ids != 0).astype(int).tolist())


@fault("logits of another column")
def _(random: Random) -> Edit:
    _keep, batch = padded(random, "left")
    column = random.choice((-2, 0))
    return edited(batch | {"read_index": -1}, "READ_INDEX", read_index=column)


@fault("scores of another column")
def _(random: Random) -> Edit:
    keep, batch = padded(random, "right")
    need(not keep.all())
    sizes = keep.sum(axis=1).tolist()
    return edited(batch | {"task": "score", "read_index": [size - 1 for size in sizes]}, "LAST_TOKEN",
                  read_index=[-1] * len(sizes))
