"""Packed rows drawn at random, and every way to hand their mask of cells over."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from kev_engine.isolation.layout import PackedLayout, pack
from kev_engine.isolation.mask import dense, relations

Description = dict[str, Any]
BIG = {"float32": (float(np.finfo(np.float32).min), -1e4, -1e9), "float16": (-65504.0, -1e4, -3e4),
       "bfloat16": (-3.3895313892515355e38, -1e4, -1e9)}
# (consumer, attention of a transformers forward, what a value means, axes)
FORMS = (
    ("sdpa", None, "keep", (2, 3, 4)), ("sdpa", None, "additive", (2, 3, 4)), ("hf", "sdpa", "keep", (4,)),
    ("hf", "sdpa", "additive", (4,)), ("hf", "eager", "additive", (4,)), ("hf", None, "additive", (4,)),
    ("mha", None, "block", (2, 3)), ("mha", None, "additive", (2, 3)), ("eager", None, "additive", (2, 4)),
    ("flex", None, "keep", (2, 4)), (None, None, "keep", (2, 4)), (None, None, "block", (2, 4)),
    (None, None, "additive", (2, 4)),
)
GPU = {"device": "cuda", "dtype": "bfloat16"}


def tree(random: Random, least: int = 1, most: int = 5, flat: bool = False, longest: int = 5) -> PackedLayout:
    """Segments of a few tokens, each the child of an earlier one or of none."""
    lengths = [random.randint(1, longest) for _ in range(random.randint(least, most))]
    if flat or random.random() < 0.4:
        return pack(lengths)
    return pack(lengths, [random.choice([None, *range(index)]) for index in range(len(lengths))])


def described(layout: PackedLayout, **more: Any) -> Description:
    """Segments, parents where there are some, and positions of a layout."""
    batch: Description = {"segments": [list(interval) for interval in layout.intervals],
                          "position_ids": layout.position_ids.tolist()}
    if any(parent is not None for parent in layout.parents):
        batch["parents"] = list(layout.parents)
    return batch | more


@dataclass(frozen=True)
class Form:
    """One way to hand a mask of cells over."""

    consumer: str | None
    way: str | None
    meaning: str
    dtype: str
    axes: int
    heads: int
    fill: float | str
    container: str

    def of(self, allowed: np.ndarray) -> Description:
        """The keys of the description that say which cells `[Q, K]` are allowed."""
        if self.meaning == "additive":
            values: np.ndarray = np.where(allowed, 0.0, float(self.fill))
        else:
            values = allowed if self.meaning == "keep" else ~allowed
        shape = {2: (), 3: (self.heads,), 4: (1, self.heads)}[self.axes]
        return self.handed_over(np.broadcast_to(values, (*shape, *values.shape)))

    def handed_over(self, values: np.ndarray) -> Description:
        """The same keys around an array of the full shape."""
        given: Description = {"mask_dtype": self.dtype}
        if self.container == "tensor":
            import torch

            given = {}
            mask: Any = torch.tensor(values.copy()).to(getattr(torch, self.dtype))
        elif self.container == "numpy" and self.dtype != "bfloat16":
            given, mask = {}, values.astype(self.dtype)
        else:
            mask = values.tolist()
        given["attention_mask"] = mask
        if self.meaning == "additive":
            given["dtype"] = self.dtype
        if self.consumer is None:
            given["mask_meaning"] = self.meaning
        else:
            given["consumer"] = self.consumer
        if self.way is not None:
            given["attn_implementation"] = self.way
        if self.axes > 2 and (self.heads > 1 or self.consumer == "mha"):
            given["num_heads"] = self.heads
        return given


def form(random: Random, *, meaning: str | None = None, consumers: tuple[str | None, ...] | None = None,
         lists: bool = False) -> Form:
    """A random way, of those with this meaning and these consumers; with `lists` no arrays."""
    fitting = [entry for entry in FORMS if (meaning is None or entry[2] == meaning)
               and (consumers is None or entry[0] in consumers)]
    consumer, way, means, axes = random.choice(fitting)
    dtype = random.choice(list(BIG)) if means == "additive" else "bool"
    number = random.choice(axes)
    heads = random.choice((1, 1, 2)) if number > 2 else 1
    if number == 3 and consumer != "mha":
        heads = 1
    fill: float | str = random.choice((*BIG[dtype], "-inf")) if means == "additive" else 0.0
    container = "lists" if lists else random.choice(("lists", "lists", "lists", "numpy", "tensor"))
    return Form(consumer, way, means, dtype, number, heads, fill, container)


@dataclass(frozen=True)
class Row:
    """A packed row with its mask of cells: what is allowed, whose rows count, and how it is handed over."""

    layout: PackedLayout
    allowed: np.ndarray
    live: np.ndarray
    related: np.ndarray
    form: Form
    more: Description

    @property
    def total(self) -> int:
        return self.layout.num_tokens

    def batch(self, allowed: np.ndarray | None = None, **changes: Any) -> Description:
        cells = self.form.of(self.allowed if allowed is None else allowed)
        return described(self.layout) | cells | self.more | changes


def row(random: Random, *, least: int = 1, flat: bool = False, window: bool | None = None,
        both_ways: bool | None = None, pads: bool | None = None, longest: int = 5, **way: Any) -> Row:
    """At least two tokens; a window, both directions and segments of padding now and then, unless it is said."""
    layout = tree(random, least, flat=flat, longest=longest)
    while layout.num_tokens < 2:
        layout = tree(random, least, flat=flat, longest=longest)
    more: Description = {}
    pad: int | None = None
    if random.random() < 0.25 if pads is None else pads:
        length = random.randint(1, 3)
        if random.random() < 0.5:
            pad = 0
            layout = pack((length, *layout.lengths), (None, *(None if parent is None else parent + 1
                                                              for parent in layout.parents)))
        else:
            pad = layout.num_segments
            layout = pack((*layout.lengths, length), (*layout.parents, None))
        more["pad_segments"] = [pad]
    related = relations(layout)[layout.segment_ids][:, layout.segment_ids]
    width = None
    if random.random() < 0.2 if both_ways is None else both_ways:
        more["want_causal"] = False
        allowed = related.copy()
    else:
        width = random.randint(1, 6) if (random.random() < 0.2 if window is None else window) else None
        allowed = dense(layout, width)
    if width is not None:
        more["sliding_window"] = width
    live = layout.segment_ids != (-1 if pad is None else pad)
    handed = form(random, **way)
    if pad is not None and handed.fill != "-inf" and random.random() < 0.3:
        allowed[~live] = False
    return Row(layout, allowed, live, related, handed, more)
