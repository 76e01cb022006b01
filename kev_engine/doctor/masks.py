"""Mask: an attention mask as it was handed over, from lists, arrays, files or a shorthand; built when looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kev_engine.doctor import fields
from kev_engine.doctor.cells import Cells, overlay
from kev_engine.doctor.files import read_array
from kev_engine.errors import InvalidField
from kev_engine.isolation.layout import PackedLayout, pack
from kev_engine.isolation.mask import run_arrays

Values = npt.NDArray[Any]
FORMS = ("keep", "additive", "float01", "block")
CHUNK_CELLS = 1 << 22
MOST_AXES = 4


@dataclass(frozen=True, eq=False)
class Pattern:
    """A mask named instead of written out: one value where `layout` allows a cell, another where it does not.

    Without a layout every cell holds `inside`. `flips` are cells (query, key) that hold the other value.
    """

    layout: PackedLayout | None
    inside: float
    outside: float
    flips: tuple[tuple[int, int], ...] = ()

    def inner(self) -> Cells:
        """The cells that hold `inside`, of a pattern with a layout."""
        assert self.layout is not None
        size = self.layout.num_tokens
        seen = Cells.from_runs(size, size, *run_arrays(self.layout))
        if not self.flips:
            return seen
        places = np.unique([query * size + key for query, key in self.flips])
        flipped = Cells(size, size, places, places + 1)
        marks = overlay(size, size, {"seen": seen, "flipped": flipped})
        kept, opened = marks.select("seen", without="flipped"), marks.select("flipped", without="seen")
        return Cells.from_runs(size, size, *(np.concatenate([getattr(part, edge) for part in (kept, opened)])
                                             for edge in ("run_rows", "run_firsts", "run_lasts")))


@dataclass(frozen=True, eq=False)
class Mask:
    """`shape` as handed over; `array` holds the values, or `pattern` says them. `dtype` is known for arrays only."""

    shape: tuple[int, ...]
    array: Values | None = None
    pattern: Pattern | None = None
    dtype: str | None = None

    @property
    def num_cells(self) -> int:
        return math.prod(self.shape)

    def distinct(self) -> Values:
        """The different values, ascending, as floats; NaN last. Of a huge variety only the extremes are kept."""
        return self._distinct

    @cached_property
    def _distinct(self) -> Values:
        if self.pattern is not None:
            values = {self.pattern.inside} if self.num_cells else set()
            if self.pattern.layout is not None and self.num_cells:
                size = self.pattern.layout.num_tokens
                count = self.pattern.inner().count if self.pattern.flips else size * (size + 1) // 2
                values = {self.pattern.inside} if count else set()
                values |= {self.pattern.outside} if count < size * size else set()
            return np.array(sorted(values), dtype=np.float64)
        assert self.array is not None
        found: set[float] = set()
        flat = self.array.reshape(-1)
        for start in range(0, flat.size, CHUNK_CELLS):
            part = _different(flat[start : start + CHUNK_CELLS])
            found.update(part[~np.isnan(part)].tolist()[:64] + part[~np.isnan(part)].tolist()[-64:])
            if np.isnan(part).any():
                found.add(math.nan)
        numbers = sorted(value for value in found if not math.isnan(value))
        return np.array(numbers + [math.nan] * any(math.isnan(value) for value in found))

    def count(self, test: Callable[[Values], Values]) -> int:
        """The number of cells whose value passes `test`, which maps an array of floats to booleans."""
        if self.pattern is None:
            assert self.array is not None
            flat = self.array.reshape(-1)
            return sum(int(test(flat[start : start + CHUNK_CELLS].astype(np.float64)).sum())
                       for start in range(0, flat.size, CHUNK_CELLS))
        inside, outside = (bool(test(np.array([value]))[0]) for value in (self.pattern.inside, self.pattern.outside))
        if self.pattern.layout is None:
            return self.num_cells if inside else 0
        repeats = self.num_cells // max(1, self.shape[-1] * self.shape[-2])
        allowed = self.pattern.inner().count * repeats
        return allowed * inside + (self.num_cells - allowed) * outside

    def line(self, index: int) -> Values:
        """`[K]`: row `index` of a mask of one or two axes, as floats."""
        if self.array is not None:
            rows = self.array.reshape(-1, self.shape[-1])
            return np.asarray(rows[index], dtype=np.float64)
        assert self.pattern is not None
        if self.pattern.layout is None:
            return np.full(self.shape[-1], self.pattern.inside)
        values = np.full(self.shape[-1], self.pattern.outside)
        for start, end in self.pattern.inner().row_runs(index):
            values[start:end] = self.pattern.inside
        return values

    def planes(self) -> int:
        """How many `[Q, K]` planes stand behind each other on the leading axes."""
        return math.prod(self.shape[:-2])

    def cells(self, plane: int, allowed: Callable[[Values], Values]) -> Cells:
        """The cells of one plane whose value passes `allowed`."""
        queries, keys = self.shape[-2:]
        if self.pattern is not None:
            values = np.array([self.pattern.inside, self.pattern.outside])
            inside, outside = (bool(flag) for flag in allowed(values))
            if self.pattern.layout is None:
                return Cells.everything(queries, keys) if inside else Cells.nothing(queries, keys)
            if inside and outside:
                return Cells.everything(queries, keys)
            seen = self.pattern.inner()
            return seen if inside else seen.complement() if outside else Cells.nothing(queries, keys)
        assert self.array is not None
        matrix = self.array.reshape(-1, queries, keys)[plane]
        return Cells.from_chunks(queries, keys, (allowed(part) for part in _row_chunks(matrix)))

    def different(self, planes: range) -> list[int]:
        """The first of these planes and those that differ from it."""
        if self.pattern is not None or len(planes) == 1:
            return [planes.start]
        assert self.array is not None
        stack = self.array.reshape(-1, *self.shape[-2:])
        return [plane for plane in planes if plane == planes.start or (stack[plane] != stack[planes.start]).any()]


def _different(part: Values) -> Values:
    """The different values, as floats; without a sort where there are only two, as in most masks."""
    low, high = part.min(), part.max()
    if ((part == low) | (part == high)).all():
        return np.unique(np.array([low, high], dtype=np.float64))
    return np.unique(part.astype(np.float64))


def _row_chunks(matrix: Values) -> Iterator[Values]:
    step = max(1, CHUNK_CELLS // max(1, matrix.shape[1]))
    for start in range(0, matrix.shape[0], step):
        part = matrix[start : start + step]
        yield part if part.dtype == np.bool_ else part.astype(np.float64, copy=False)


def read_mask(key: str, value: Any, folder: Path | None) -> Mask:
    """A mask in any form of FORMAT: nested lists, an array or tensor, a file, or a shorthand."""
    dtype = str(value.dtype).removeprefix("torch.") if hasattr(value, "detach") else None
    value = fields.plain(value)
    if isinstance(value, dict):
        if "file" in value:
            return _from_file(key, value, folder)
        return _from_shorthand(key, value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise InvalidField(key, str(value.dtype), "it must hold numbers or booleans")
        if dtype is None and value.dtype.kind in "bf":
            dtype = str(value.dtype)
        return _checked(key, value, dtype)
    if not isinstance(value, list | tuple):
        raise InvalidField(key, value, "it must be a nested list, an array, {\"file\": …} or a shorthand")
    return _checked(key, _from_lists(key, value), None)


def _checked(key: str, array: Values, dtype: str | None) -> Mask:
    if not 1 <= array.ndim <= MOST_AXES:
        raise InvalidField(key, list(array.shape), "it must have one to four axes")
    if array.size == 0:
        raise InvalidField(key, list(array.shape), "it must not be empty")
    return Mask(array.shape, array=array, dtype=dtype)


def _from_lists(key: str, value: Any) -> Values:
    shape: list[int] = []
    inner = value
    while isinstance(inner, list | tuple):
        shape.append(len(inner))
        if len(shape) > MOST_AXES:
            raise InvalidField(key, f"{len(shape)} levels of lists", "it must have one to four axes")
        inner = inner[0] if inner else None
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, TypeError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "biuf" and array.shape == tuple(shape):
        return array
    flat: list[float] = []
    _flatten(key, value, shape, flat)
    return np.asarray(flat, dtype=np.float64).reshape(shape)


def _flatten(key: str, value: Any, shape: list[int], out: list[float]) -> None:
    if not shape:
        out.append(_cell(key, value))
        return
    if not isinstance(value, list | tuple) or len(value) != shape[0]:
        raise InvalidField(key, value, f"a list of {shape[0]} entries belongs here, as in the other rows")
    for index, entry in enumerate(value):
        _flatten(f"{key}[{index}]", entry, shape[1:], out)


def _cell(key: str, value: Any) -> float:
    value = fields.plain(value)
    if isinstance(value, str) and value in ("-inf", "inf", "nan"):
        return float(value)
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise InvalidField(key, value, "a mask holds numbers, true, false, \"-inf\" or \"nan\"")


def _from_file(key: str, value: dict[str, Any], folder: Path | None) -> Mask:
    if set(value) - {"file", "key"}:
        raise InvalidField(key, sorted(set(value) - {"file", "key"}), "beside \"file\" only \"key\" may stand")
    name = fields.text(f"{key}.file", value["file"])
    array, dtype = read_array(f"{key}.file", (folder or Path()) / name, value.get("key"))
    if array.dtype.kind not in "biuf":
        raise InvalidField(f"{key}.file", str(array.dtype), "it must hold numbers or booleans")
    return _checked(key, array, dtype)


def _from_shorthand(key: str, value: dict[str, Any]) -> Mask:
    unknown = set(value) - {"ones", "zeros", "tril", "block_causal", "as", "sentinel", "repeat", "flip"}
    kinds = [kind for kind in ("ones", "zeros", "tril", "block_causal") if kind in value]
    if unknown or len(kinds) != 1:
        raise InvalidField(key, sorted(map(str, value)), "a shorthand is one of ones, zeros, tril, block_causal, file")
    kind = kinds[0]
    repeat = fields.wholes(f"{key}.repeat", value.get("repeat", []), 1)
    if kind in ("ones", "zeros"):
        if set(value) & {"as", "sentinel", "flip"}:
            raise InvalidField(key, sorted(map(str, value)),
                               "\"as\", \"sentinel\" and \"flip\" belong to tril and block_causal")
        base = fields.wholes(f"{key}.{kind}", value[kind], 1)
        shape, pattern = (*repeat, *base), Pattern(None, float(kind == "ones"), 0.0)
    else:
        lengths = (fields.whole(f"{key}.tril", value["tril"], 1),) if kind == "tril" else fields.wholes(
            f"{key}.block_causal", value["block_causal"], 0)
        total = sum(lengths)
        form = fields.choice(f"{key}.as", value.get("as", "keep"), FORMS)
        if form == "additive" and "sentinel" not in value:
            raise InvalidField(f"{key}.sentinel", None, "an additive shorthand needs the fill value")
        fill = _cell(f"{key}.sentinel", value["sentinel"]) if "sentinel" in value else 0.0
        inside, outside = {"keep": (1.0, 0.0), "float01": (1.0, 0.0), "block": (0.0, 1.0),
                           "additive": (0.0, fill)}[form]
        if total > MOST_TOKENS:
            raise InvalidField(f"{key}.{kind}", total, f"at most {MOST_TOKENS} tokens can be judged")
        flips = _flips(f"{key}.flip", value.get("flip", []), total)
        shape, pattern = (*repeat, total, total), Pattern(pack(lengths), inside, outside, flips)
    if not 1 <= len(shape) <= MOST_AXES or 0 in shape:
        raise InvalidField(key, list(shape), "it must have one to four axes, none of them empty")
    return Mask(shape, pattern=pattern, dtype=None)


def _flips(key: str, value: Any, total: int) -> tuple[tuple[int, int], ...]:
    found = []
    for index, entry in enumerate(fields.items(key, value)):
        query, place = fields.wholes(f"{key}[{index}]", entry, 0, 2)
        if max(query, place) >= total:
            raise InvalidField(f"{key}[{index}]", [query, place], f"the mask has {total} queries and keys")
        found.append((query, place))
    return tuple(found)


MOST_TOKENS = 1 << 22
