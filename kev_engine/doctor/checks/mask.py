"""The mask as an array: dtype, shape, values, fill value, size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kev_engine.doctor import consumer as consumers
from kev_engine.doctor.consumer import is_float
from kev_engine.doctor.facts import MOST_CELLS, Facts
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.masks import CHUNK_CELLS, Mask, Values

# The largest finite number of a dtype, and half a step above it: from there on a value rounds to infinity.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": float(np.finfo(np.float32).max)}
ROUNDS_AWAY = {"float16": 65520.0, "bfloat16": 3.3961775292304957e38, "float32": 3.4028235677973366e38}
MOST_PLANE_CELLS = 1 << 28


def check(facts: Facts) -> Iterator[Finding]:
    mask = facts.batch.attention_mask
    if mask is not None:
        yield from _size(mask)
        yield from _shape(facts, mask)
        yield from _dtype(facts, mask)
        yield from _values(facts, mask)
        yield from _segment_numbers(facts)
        yield from _added(facts)
    if facts.batch.mask_planes:
        yield from _planes(facts, facts.batch.mask_planes)
    width, total = facts.batch.bias_width, facts.total
    if width is not None and total is not None and width * total > MOST_CELLS:
        yield Finding("SIZE_OVERFLOW", found=width * total, expected=MOST_CELLS,
                      facts={"total": total, "width": width})


def _size(mask: Mask) -> Iterator[Finding]:
    if mask.num_cells > MOST_CELLS:
        yield Finding("MASK_TOO_LARGE", found=mask.num_cells, expected=MOST_CELLS, facts={"shape": list(mask.shape)})


def _shape(facts: Facts, mask: Mask) -> Iterator[Finding]:
    expected = _wanted_shape(facts, mask)
    if expected is not None and list(mask.shape) != expected:
        yield Finding("MASK_SHAPE", found=list(mask.shape), expected=expected,
                      facts={"consumer": facts.batch.consumer or "the consumer"})


def _wanted_shape(facts: Facts, mask: Mask) -> list[int] | None:
    """The shape a mask of cells must have, or None where any broadcasting one will do."""
    batch, shape = facts.batch, list(mask.shape)
    if facts.row_mask is not None and facts.rectangular and len(shape) == 2 and batch.kv_len is not None:
        return [shape[0], batch.kv_len]
    if facts.row_mask is not None and batch.consumer == "sdpa" and shape[0] > 1 and len(shape) == 2:
        # scaled_dot_product_attention broadcasts the last two axes: it takes the rows of the batch for queries.
        return [shape[0], 1, 1, shape[1]]
    if facts.row_mask is not None or batch.consumer == "flash_varlen":
        return None
    cells = facts.shape
    if cells is None:
        return None
    queries, keys = cells
    rows = facts.num_rows
    if len(shape) == 2 and batch.consumer == "hf":
        # A transformers forward takes two axes for one number a key.
        return [1, 1, queries, keys]
    if len(shape) == 2:
        return None if shape == [queries, keys] else [queries, keys]
    if len(shape) == 3:
        plain = shape[0] == 1 and batch.consumer != "hf"
        heads = batch.num_heads
        if batch.consumer == "mha":
            fits = heads is None or shape[0] == rows * heads
            return None if fits and shape[1:] == [queries, keys] else [rows * (heads or 1), queries, keys]
        known = batch.input_ids is not None or batch.consumer == "hf"
        if plain or ((not known or shape[0] != rows) and batch.consumer != "hf"):
            return None if shape[1:] == [queries, keys] else [shape[0], queries, keys]
        return [shape[0], 1, queries, keys]
    if batch.consumer == "mha":
        return [rows * batch.num_heads, queries, keys] if batch.num_heads else [queries, keys]
    first = rows if batch.input_ids is not None and shape[0] not in (1, rows) else shape[0]
    second = shape[1] if shape[1] == 1 or batch.num_heads in (None, shape[1]) else 1
    wanted = [first, second, shape[2] if shape[2] == 1 and shape[3] == keys else queries, keys]
    if shape[-2:] != [queries, keys] and wanted != shape:
        wanted = [first, 1, queries, keys]
    return None if wanted == shape else wanted


def _dtype(facts: Facts, mask: Mask) -> Iterator[Finding]:
    batch, dtype = facts.batch, facts.batch.mask_dtype
    if dtype is None or dtype == "bool":
        return
    takes_keep_rows = batch.consumer in ("hf", None, "flash_varlen", "flex")
    if facts.row_mask is not None and takes_keep_rows:
        return
    strict = batch.consumer in ("sdpa", "mha") or (
        batch.consumer == "hf" and batch.attn_implementation in ("sdpa", None))
    if not strict:
        return
    if not is_float(dtype):
        yield Finding("MASK_DTYPE", found=dtype, expected="bool", facts={"consumer": batch.consumer})
    elif batch.dtype is not None and dtype != batch.dtype:
        yield Finding("MASK_DTYPE", found=dtype, expected=batch.dtype, variant="float",
                      facts={"consumer": batch.consumer})


def _values(facts: Facts, mask: Mask) -> Iterator[Finding]:
    if mask.num_cells > MOST_CELLS:
        return
    values = mask.distinct()
    if np.isnan(values).any():
        yield Finding("MASK_NAN", count=mask.count(lambda part: np.isnan(part)))
    yield from _fill(facts, values, mask)


def _fill(facts: Facts, values: Values, mask: Mask | None) -> Iterator[Finding]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return
    lowest, batch = float(finite.min()), facts.batch
    dtype = batch.mask_dtype or batch.dtype
    if lowest <= -ROUNDS_AWAY.get(dtype or "", np.inf):
        yield Finding("MASK_SENTINEL_UNREPRESENTABLE", found=lowest,
                      facts={"dtype": dtype, "largest": LARGEST[dtype or ""]})
    if consumers.HIDDEN_BELOW < lowest < 0 and not (mask is not None and _only_biases(facts, mask, values)):
        yield Finding("MASK_SENTINEL_WEAK", "warning", found=lowest, facts={"limit": consumers.HIDDEN_BELOW})


def _only_biases(facts: Facts, mask: Mask, values: Values) -> bool:
    """Whether small negative values stand only on keys that may be read, so that they are a bias and no fill value."""
    if not facts.judged or np.count_nonzero(values < 0) < 2:
        return False
    return all(not judged.marks.select("actual", without="should", rows=judged.live).count for judged in facts.judged)


def _segment_numbers(facts: Facts) -> Iterator[Finding]:
    if not facts.numbers_segments or facts.row_mask is None:
        return
    values, batch = facts.row_mask.distinct(), facts.batch
    # A block mask of flex is made of such numbers by whoever says that they are some.
    if (values[-1] <= 1 and batch.consumer != "hf") or (batch.mask_meaning is not None and batch.consumer == "flex"):
        return
    variant = "flash" if batch.attn_implementation == "flash_attention_2" else ""
    yield Finding("SEGMENT_ID_MASK", "warning", variant=variant, facts={"highest": int(values[-1])})


def _added(facts: Facts) -> Iterator[Finding]:
    """0 and 1 where the consumer adds the mask to the scores."""
    mask = facts.dense_mask
    if mask is None or mask.num_cells > MOST_CELLS or facts.meaning != "additive":
        return
    if facts.batch.consumer == "flash_varlen":
        return
    if consumers.mask_is_01(mask.distinct()):
        boolean = facts.batch.mask_dtype == "bool"
        yield Finding("MASK_VALUES_AS_BIAS", variant="bool" if boolean else "",
                      facts={"consumer": facts.batch.consumer or "the consumer", "dtype": facts.batch.mask_dtype,
                             "way": facts.batch.attn_implementation})


def _planes(facts: Facts, planes: tuple[Mask, ...]) -> Iterator[Finding]:
    batch = facts.batch
    for plane in planes:
        yield from _size(plane)
    if any(plane.num_cells > MOST_PLANE_CELLS for plane in planes):
        return
    for plane in planes:
        nan = plane.count(lambda part: np.isnan(part))
        if nan:
            yield Finding("MASK_NAN", count=nan)
        yield from _fill(facts, plane.distinct(), None)
    limit = ROUNDS_AWAY.get(batch.mask_dtype or batch.dtype or "")
    if limit is None:
        return
    count = _overflowing(planes, limit)
    if count is None:
        yield Finding("MASK_SHAPE", found=[list(plane.shape) for plane in planes], variant="planes")
    elif count:
        yield Finding("MASK_OVERFLOW", count=count,
                      facts={"dtype": batch.mask_dtype or batch.dtype, "num_planes": len(planes)})


def _overflowing(planes: tuple[Mask, ...], limit: float) -> int | None:
    """Cells that are finite in each plane and infinite in the sum; None where the planes do not broadcast."""
    try:
        shape = np.broadcast_shapes(*(plane.shape for plane in planes))
    except ValueError:
        return None
    arrays = [np.broadcast_to(_values_of(plane), shape) for plane in planes]
    flat = [array.reshape(-1, shape[-1]) for array in arrays]
    step = max(1, CHUNK_CELLS // shape[-1])
    count = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat[0].shape[0], step):
            parts = [array[start : start + step].astype(np.float64) for array in flat]
            whole = np.logical_and.reduce([part > -limit for part in parts])
            count += int((whole & (np.sum(parts, axis=0) <= -limit)).sum())
    return count


def _values_of(plane: Mask) -> Values:
    if plane.array is not None:
        return plane.array
    assert plane.pattern is not None
    if plane.pattern.layout is None:
        return np.full(plane.shape, plane.pattern.inside)
    inside, outside = plane.pattern.inside, plane.pattern.outside
    if inside == outside:
        return np.full(plane.shape, inside)
    seen = plane.cells(0, lambda values: np.equal(values, inside))
    return np.broadcast_to(np.where(seen.dense(), inside, outside), plane.shape)
