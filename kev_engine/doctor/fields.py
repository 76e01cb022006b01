"""Readers of single values of a batch description. Each returns the value in one form, or names the key at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kev_engine.errors import InvalidField

IntArray = npt.NDArray[np.int64]
LARGEST_INT = 2**62


def plain(value: Any) -> Any:
    """A tensor or numpy value as a numpy array or Python scalar; anything else unchanged. torch is never imported."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            value = value.float()
        value = value.numpy()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value


def whole(key: str, value: Any, least: int | None = None) -> int:
    """A whole number, at least `least`; true and false are not numbers."""
    value = plain(value)
    way_out = "it must be a whole number" + ("" if least is None else f" of at least {least}")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INT:
        raise InvalidField(key, value, way_out)
    if least is not None and value < least:
        raise InvalidField(key, value, way_out)
    return value


def number(key: str, value: Any) -> float:
    """A finite number."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(key, value, "it must be a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise InvalidField(key, value, "it must be a finite number")
    return result


def truth(key: str, value: Any) -> bool:
    value = plain(value)
    if not isinstance(value, bool):
        raise InvalidField(key, value, "it must be true or false")
    return value


def text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidField(key, value, "it must be a text")
    return value


def choice(key: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidField(key, value, f"it must be one of {', '.join(allowed)}")
    return value


def items(key: str, value: Any, length: int | None = None) -> list[Any]:
    """A list (tuples and one-dimensional arrays count), of `length` entries where that is fixed."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise InvalidField(key, value, "it must be a list")
    if length is not None and len(value) != length:
        raise InvalidField(key, value, f"it must be a list of {length} entries")
    return list(value)


def table(key: str, value: Any) -> dict[str, Any]:
    """An object with text keys."""
    if not isinstance(value, Mapping):
        raise InvalidField(key, value, "it must be an object with named entries")
    for name in value:
        if not isinstance(name, str):
            raise InvalidField(key, name, "its names must be texts")
    return dict(value)


def wholes(key: str, value: Any, least: int | None = None, length: int | None = None) -> tuple[int, ...]:
    """A list of whole numbers."""
    entries = items(key, value, length)
    if all(type(entry) is int and abs(entry) <= LARGEST_INT and (least is None or entry >= least) for entry in entries):
        return tuple(entries)
    return tuple(whole(f"{key}[{index}]", entry, least) for index, entry in enumerate(entries))


def texts(key: str, value: Any) -> tuple[str, ...]:
    return tuple(text(f"{key}[{index}]", entry) for index, entry in enumerate(items(key, value)))


def integers(key: str, value: Any, ranks: tuple[int, ...]) -> IntArray:
    """An array of whole numbers whose number of axes is one of `ranks`, none of them empty."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        array = value
        if array.dtype.kind not in "iu" or (array.dtype.kind == "u" and array.size and array.max() > LARGEST_INT):
            raise InvalidField(key, str(array.dtype), "it must hold whole numbers")
    else:
        array = _from_lists(key, items(key, value), max(ranks))
    if array.ndim not in ranks:
        raise InvalidField(key, list(array.shape), f"it must have {' or '.join(map(str, ranks))} axes")
    if array.size == 0:
        raise InvalidField(key, list(array.shape), "it must not be empty")
    return array.astype(np.int64)


def _from_lists(key: str, rows: list[Any], deepest: int) -> IntArray:
    if not rows or not isinstance(plain(rows[0]), list | tuple | np.ndarray):
        return np.asarray(wholes(key, rows), dtype=np.int64)
    if deepest == 1:
        raise InvalidField(key, rows, "it must be one list of whole numbers")
    parts = [_from_lists(f"{key}[{index}]", items(f"{key}[{index}]", row), deepest - 1)
             for index, row in enumerate(rows)]
    for index, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise InvalidField(
                f"{key}[{index}]", list(part.shape), f"all rows must have the shape {list(parts[0].shape)}"
            )
    return np.stack(parts)
