"""What the named consumer does with a batch: which source it obeys and which cells it will allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kev_engine.doctor.batch import Batch
from kev_engine.doctor.cells import BoolArray, Cells, overlay
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.layouts import from_borders, position_borders
from kev_engine.doctor.masks import Mask, Values
from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import run_arrays

# A fill value at or below this leaves no weight on a masked key.
HIDDEN_BELOW = -1000.0
# transformers reads packing from restarted positions in every backend from this version on.
PACKING_FROM_POSITIONS = (4, 54)
# Before this version a 4-D mask of 0 and 1 was turned into an additive one.
ADDS_CUSTOM_MASKS = (4, 41)
# flash-attn aligned causal masks to the top left before this version.
ALIGNS_BOTTOM_RIGHT = (2, 1)


@dataclass(frozen=True, eq=False)
class Effective:
    """`cells` that will be allowed, or None where that cannot be known; `source` is what the consumer obeys."""

    cells: Cells | None
    source: str


def version(library: str | None) -> tuple[int, int] | None:
    """Major and minor number in a text such as `transformers 4.57.1`."""
    numbers = re.findall(r"\d+", library or "")
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def older(library: str | None, than: tuple[int, int]) -> bool:
    """Whether the library is known to be older."""
    found = version(library)
    return found is not None and found < than


def is_float(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("float", "bfloat"))


def reads_dense_as(batch: Batch, mask: Mask) -> str:
    """How the consumer reads a mask of cells: `keep`, `block` or `additive`.

    What a named consumer does counts, not what the mask was meant to be; without one the stated meaning counts.
    """
    values = mask.distinct()
    signs = bool((values < 0).any() or np.isnan(values).any())
    floats = is_float(batch.mask_dtype) or (batch.mask_dtype is None and (signs or batch.mask_meaning == "additive"))
    if batch.consumer in ("sdpa", "mha"):
        return "additive" if floats else "keep" if batch.consumer == "sdpa" else "block"
    if batch.consumer == "hf":
        if mask_is_01(values) and older(batch.library, ADDS_CUSTOM_MASKS):
            return "keep"
        adds_anything = batch.attn_implementation in ("eager", "flex_attention") and batch.mask_dtype is not None
        return "additive" if floats or adds_anything else "keep"
    if batch.mask_meaning in ("keep", "block", "additive"):
        return batch.mask_meaning
    return "additive" if signs or (floats and batch.consumer is not None) else "keep"


def mask_is_01(values: Values) -> bool:
    """Whether the different values of a mask are 0 and 1, with at least one 1."""
    return bool(len(values)) and set(values.tolist()) <= {0.0, 1.0} and 1.0 in values


def decode(values: Values, meaning: str) -> BoolArray:
    """Which of these mask values let a key be read."""
    if meaning == "additive":
        return np.greater(values, HIDDEN_BELOW)
    return np.not_equal(values, 0) if meaning == "keep" else np.equal(values, 0)


def varlen_cells(cu_q: tuple[int, ...], cu_k: tuple[int, ...], queries: int, keys: int, *, top_left: bool = False,
                 causal: bool = True, window: int | None = None) -> Cells:
    """The cells of a varlen call: query i of a segment sits at its end (bottom right), or at its start (top left)."""
    lengths = np.diff(cu_k)
    layout = pack([cu_k[0], *lengths.tolist(), max(0, keys - cu_k[-1])])
    segment = np.repeat(np.arange(len(lengths)), np.diff(cu_q))
    place = np.arange(cu_q[0], cu_q[-1]) - np.asarray(cu_q)[segment]
    shift = 0 if top_left else (lengths - np.diff(cu_q))[segment]
    row = place + shift
    if top_left:
        row = np.minimum(row, lengths[segment] - 1)
    usable = (row >= 0) & (lengths[segment] > 0)
    source = np.full(queries, -1, dtype=np.int64)
    source[np.arange(cu_q[0], cu_q[-1])[usable]] = (row + np.asarray(cu_k)[segment])[usable]
    if not causal and window is None:
        source[np.arange(cu_q[0], cu_q[-1])] = np.where(lengths[segment] > 0, np.asarray(cu_k)[segment], -1)
    return take_rows(Cells.from_runs(layout.num_tokens, keys, *run_arrays(layout, window, not causal)), source)


def take_rows(cells: Cells, source: IntArray) -> Cells:
    """The rows `source` of `cells` in a new order; −1 gives an empty row."""
    first = np.searchsorted(cells.run_rows, np.maximum(source, 0), side="left")
    last = np.searchsorted(cells.run_rows, np.maximum(source, 0), side="right")
    sizes = np.where(source < 0, 0, last - first)
    rows = np.repeat(np.arange(len(source)), sizes)
    runs = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(first, sizes)
    return Cells.from_runs(len(source), cells.num_keys, rows, cells.run_firsts[runs], cells.run_lasts[runs])


def rectangle(queries: int, keys: int, *, top_left: bool = False, causal: bool = True,
              window: int | None = None) -> Cells:
    """Cells of `queries` new tokens on `keys` keys, aligned to the bottom right unless told otherwise."""
    return varlen_cells((0, queries), (0, keys), queries, keys, top_left=top_left, causal=causal, window=window)


def meets(one: Cells, other: Cells) -> Cells:
    return overlay(one.num_queries, one.num_keys, {"one": one, "other": other}).select("one", "other")


def columns(cells: Cells, keep: BoolArray) -> Cells:
    """The cells whose key is kept."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8)))
    firsts, lasts = edges[::2], edges[1::2]
    rows = np.repeat(np.arange(cells.num_queries), len(firsts))
    kept = Cells.from_runs(cells.num_queries, cells.num_keys, rows, np.tile(firsts, cells.num_queries),
                           np.tile(lasts, cells.num_queries))
    return meets(cells, kept)


def rows_of(cells: Cells, keep: BoolArray) -> Cells:
    """The cells whose query is kept."""
    marked = keep[cells.run_rows]
    return Cells(cells.num_queries, cells.num_keys, cells.starts[marked], cells.ends[marked])


def derives_from_positions(batch: Batch) -> bool:
    """Whether this transformers forward takes segments from restarted positions when it is given no mask."""
    if batch.past_length:
        return False
    return batch.attn_implementation == "flash_attention_2" or not older(batch.library, PACKING_FROM_POSITIONS)


def takes_boundaries(batch: Batch, keep: BoolArray | None) -> bool:
    """Whether a transformers forward hands the given cu_seqlens on to its varlen kernel; a mask of ones is dropped."""
    given = batch.cu_seqlens is not None or batch.cu_seqlens_q is not None
    masked = batch.attention_mask is not None and (keep is None or not keep.all())
    return batch.consumer == "hf" and batch.attn_implementation == "flash_attention_2" and given and not masked


def hf_without_mask(batch: Batch, positions: IntArray | None, total: int) -> Effective:
    """A transformers forward that is given no mask, or an all-ones one under flash attention."""
    everything = Effective(_one_segment(batch, total), "causal default")
    if positions is None or len(positions) != total or not derives_from_positions(batch):
        return everything
    borders = position_borders(positions)
    return Effective(from_borders(borders, total, "position_ids").visible(), "position_ids")


def _one_segment(batch: Batch, total: int) -> Cells:
    if batch.is_causal is False:
        return Cells.everything(total, total)
    return rectangle(total, total)


def hf_with_keep(batch: Batch, keep: BoolArray, positions: IntArray | None) -> Effective:
    """A transformers forward with a `[B, T]` mask: causal, without the keys it sets to 0."""
    total = len(keep)
    if batch.attn_implementation == "flash_attention_2":
        if keep.all():
            return hf_without_mask(batch, positions, total)
        return Effective(rows_of(columns(_one_segment(batch, total), keep), keep), "attention_mask")
    return Effective(columns(_one_segment(batch, total), keep), "attention_mask")


def flash_cells(batch: Batch, queries: int, keys: int) -> Effective:
    """A varlen kernel: cu_seqlens decide, a mask is not looked at."""
    top_left = older(batch.library, ALIGNS_BOTTOM_RIGHT)
    causal = batch.want_causal if batch.is_causal is None else batch.is_causal
    cu_q, cu_k = batch.cu_seqlens_q or batch.cu_seqlens, batch.cu_seqlens_k or batch.cu_seqlens
    if cu_q is None or cu_k is None:
        if not batch.is_causal:
            return Effective(None, "nothing")
        return Effective(rectangle(queries, keys, top_left=top_left), "is_causal")
    if not (usable_cu(cu_q, queries) and usable_cu(cu_k, keys)) or len(cu_q) != len(cu_k):
        return Effective(None, "cu_seqlens")
    return Effective(varlen_cells(cu_q, cu_k, queries, keys, top_left=top_left, causal=causal), "cu_seqlens")


def usable_cu(cu: tuple[int, ...], total: int) -> bool:
    """Whether a kernel can walk these boundaries: from 0, never falling, not past the row."""
    return cu[0] == 0 and cu[-1] <= total and all(a <= b for a, b in pairwise(cu))

