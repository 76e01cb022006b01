"""Masks as arrays: values, dtypes, shapes, fill values, sizes, and kernels that look at no mask."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.doctor.faults.edit import Edit, edited, fault, need, place
from tests.doctor.right import varlen
from tests.doctor.rows import BIG, described, row, tree


@fault("0/1 floats added")
def _(random: Random) -> Edit:
    cells = row(random, meaning="additive", consumers=("sdpa", "hf", "mha", "eager"))
    values = cells.allowed.astype(float)
    shape = {2: (), 3: (cells.form.heads,), 4: (1, cells.form.heads)}[cells.form.axes]
    wrong = cells.form.handed_over(np.broadcast_to(values, (*shape, *values.shape)))
    return Edit(cells.batch(), cells.batch() | wrong, ("MASK_VALUES_AS_BIAS",))


@fault("booleans added")
def _(random: Random) -> Edit:
    cells = row(random, meaning="keep", consumers=("hf",), lists=True)
    return edited(cells.batch(), "MASK_VALUES_AS_BIAS", attn_implementation="eager")


@fault("mask in whole numbers")
def _(random: Random) -> Edit:
    cells = row(random, meaning="keep", consumers=("sdpa", "hf"), lists=True)
    return edited(cells.batch(), "MASK_DTYPE", mask_dtype=random.choice(("int64", "int32", "uint8")))


@fault("mask in another float")
def _(random: Random) -> Edit:
    cells = row(random, meaning="additive", consumers=("sdpa", "mha"), lists=True)
    other = random.choice([dtype for dtype in BIG if dtype != cells.form.dtype])
    return edited(cells.batch(), "MASK_DTYPE", dtype=other)


@fault("mask of another shape")
def _(random: Random) -> Edit:
    cells = row(random, meaning="keep", consumers=("hf",), lists=True, pads=False)
    mask = cells.batch()["attention_mask"]
    kind = random.randrange(3)
    need(cells.total > 2)
    if kind == 0:  # an axis too few
        return edited(cells.batch(), "MASK_SHAPE", attention_mask=mask[0])
    if kind == 1:  # the last key forgotten
        return edited(cells.batch(), "MASK_SHAPE", attention_mask=[
            [[line[:-1] for line in head] for head in sample] for sample in mask], total=cells.total)
    return edited(cells.batch(), "MASK_SHAPE", attention_mask=[[head[:-1] for head in sample] for sample in mask],
                  total=cells.total)


@fault("one NaN")
def _(random: Random) -> Edit:
    cells = row(random, meaning="additive")
    query, key = place(random, (cells.allowed if random.random() < 0.5 else ~cells.allowed) & cells.live[:, None])
    values = np.where(cells.allowed, 0.0, float(cells.form.fill))
    values[query, key] = np.nan
    shape = {2: (), 3: (cells.form.heads,), 4: (1, cells.form.heads)}[cells.form.axes]
    wrong = cells.form.handed_over(np.broadcast_to(values, (*shape, *values.shape)))
    return Edit(cells.batch(), cells.batch() | wrong, ("MASK_NAN",))


@fault("two masks whose sum overflows")
def _(random: Random) -> Edit:
    length, pads = random.randint(1, 4), random.randint(1, 3)
    dtype, causal, small = random.choice((("float32", BIG["float32"][0], -1e9), ("float16", -3e4, -2e4)))
    right, wrong = ([{"tril": length + pads, "as": "additive", "sentinel": causal}, [0.0] * length + [fill] * pads]
                    for fill in (small, BIG[dtype][0]))
    batch = {"lengths": [length, pads], "pad_segments": [1], "mask_dtype": dtype, "consumer": "eager"}
    return Edit(batch | {"mask_planes": right}, batch | {"mask_planes": wrong}, ("MASK_OVERFLOW",))


def refilled(random: Random, fill: float, dtypes: tuple[str, ...], *codes: str) -> Edit:
    cells = row(random, least=2, meaning="additive", lists=True)
    need(cells.form.dtype in dtypes and not cells.allowed.all() and not cells.allowed[cells.live].all())
    wrong = cells.form.of(cells.allowed) | {"attention_mask": type(cells.form)(
        **{**cells.form.__dict__, "fill": fill}).of(cells.allowed)["attention_mask"]}
    return Edit(cells.batch(), cells.batch() | wrong, codes)


@fault("a fill value too large for its dtype")
def _(random: Random) -> Edit:
    return refilled(random, random.choice((-1e9, -65520.0, -1e5)), ("float16",), "MASK_SENTINEL_UNREPRESENTABLE")


@fault("a fill value too small")
def _(random: Random) -> Edit:
    return refilled(random, random.choice((-1.0, -100.0, -999.0)), tuple(BIG), "MASK_SENTINEL_WEAK")


@fault("a mask too large")
def _(random: Random) -> Edit:
    total = random.choice((1 << 15, 40000))
    batch = {"attention_mask": {"tril": 64, "repeat": [1, 1]}, "consumer": "sdpa", "mask_dtype": "bool"}
    return edited(batch, "MASK_TOO_LARGE", attention_mask={"tril": total, "repeat": random.choice(([1, 32], [4, 1]))})


@fault("a bias too large")
def _(random: Random) -> Edit:
    total = random.randint(1 << 16, 1 << 18)
    return edited({"total": total, "bias_width": 1024}, "SIZE_OVERFLOW", bias_width=random.randint(1 << 15, 1 << 18))


@fault("segment numbers in a row mask")
def _(random: Random) -> Edit:
    layout = tree(random, 2, flat=True)
    batch = described(layout, consumer="hf", attn_implementation="flash_attention_2", dtype="float16", device="cuda",
                      attention_mask=[[1] * layout.num_tokens])
    return edited(batch, "SEGMENT_ID_MASK", attention_mask=[(layout.segment_ids + 1).tolist()])


@fault("a cell mask for flash attention")
def _(random: Random) -> Edit:
    cells = row(random, window=False, both_ways=False, pads=False, flat=True, meaning="keep", consumers=("hf",))
    return edited(cells.batch(dtype="bfloat16", device="cuda"), "BACKEND_NO_ARBITRARY_MASK",
                  attn_implementation="flash_attention_2")


@fault("a mask that the kernel does not look at")
def _(random: Random) -> Edit:
    layout, batch = varlen(random, 2)
    batch.pop("sliding_window", None)
    hole = random.randrange(layout.num_tokens - 1)
    keep = [int(token != hole) for token in range(layout.num_tokens)]
    need(layout.lengths[layout.segment_ids[hole]] > 1)
    return edited(batch, "BACKEND_IGNORES_MASK", attention_mask=[keep])


@fault("flash attention in the wrong place")
def _(random: Random) -> Edit:
    _layout, batch = varlen(random)
    return edited(batch, "BACKEND_DTYPE", **random.choice(({"dtype": "float32"}, {"device": "cpu"})))
