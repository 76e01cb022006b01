"""Batches worth examining: a right one, and one for each classic fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TOKENS = ["<s>", "The", " cat", " sat", " down", ".", "<s>", " Where", " is", " the", " sea", "?",
           "<s>", " 海", "在", "哪里"]
_LENGTHS = [6, 6, 4]
_TOTAL = sum(_LENGTHS)
_RESTARTED = [place for length in _LENGTHS for place in range(length)]
_RUNNING = list(range(_TOTAL))
_LONG = 32768
_SPLIT = ["🙂 is".encode()[:2], "🙂 is".encode()[2:4], b" is", b" it"]


def _named(**more: Any) -> dict[str, Any]:
    return {"lengths": _LENGTHS, "tokens": _TOKENS, "position_ids": _RESTARTED, **more}


def _blocks(form: str = "keep", repeat: int = 2, lengths: list[int] = _LENGTHS) -> dict[str, Any]:
    return {"block_causal": lengths, "as": form, "repeat": [1] * repeat}


def _matrix(size: int, allowed: Callable[[int, int], bool]) -> list[list[list[list[int]]]]:
    return [[[[int(allowed(query, key)) for key in range(size)] for query in range(size)]]]


def _segment(place: int) -> int:
    return (place >= 6) + (place >= 12)


_FLOATS: dict[str, Any] = {"mask_dtype": "float32", "dtype": "float32", "consumer": "hf", "attn_implementation": "sdpa"}
_BOOLEAN: dict[str, Any] = {"mask_dtype": "bool", "consumer": "sdpa"}

EXAMPLES: Mapping[str, dict[str, Any]] = {f"doctor.example.{name}": batch for name, batch in {
    "right": _named(attention_mask=_blocks(), **_BOOLEAN),
    "tutorial": _named(attention_mask=_blocks("float01", 1), **_FLOATS) | {
        "position_ids": _RUNNING, "position_kind": "rope"},
    "ones": _named(attention_mask={"ones": [1, _TOTAL]}, consumer="hf"),
    "shifted": _named(attention_mask=_blocks(lengths=[5, 6, 5]), **_BOOLEAN),
    "inverted": _named(attention_mask=_blocks(repeat=0), mask_dtype="bool", consumer="mha"),
    "bias": _named(attention_mask=_blocks("float01"), **_FLOATS),
    "future": _named(attention_mask=_matrix(_TOTAL, lambda query, key: _segment(query) == _segment(key)), **_BOOLEAN),
    "one_cell": {
        "lengths": [_LONG // 8] * 8, "consumer": "sdpa", "mask_dtype": "bool",
        "attention_mask": {"block_causal": [_LONG // 8] * 8, "repeat": [1, 1], "flip": [[24000, 5000]]}},
    "no_reset": _named(attention_mask=_blocks(), position_kind="rope", **_BOOLEAN) | {"position_ids": _RUNNING},
    "borders": _named(consumer="hf") | {"position_ids": _RUNNING},
    "cu": _named(cu_seqlens=[6, 12, 16], cu_dtype="int32", dtype="bfloat16", consumer="flash_varlen"),
    "pads": {
        "input_ids": [[0, 0, 0, 11, 12, 13], [21, 22, 23, 24, 25, 26]], "pad_token_id": 0, "padding_side": "left",
        "attention_mask": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]], "position_kind": "absolute",
        "position_ids": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]], "consumer": "hf", "task": "generate"},
    "window": {"lengths": [12], "sliding_window": 4, **_BOOLEAN,
               "attention_mask": _matrix(12, lambda query, key: 0 <= query - key < 5)},
    "shared": {
        "lengths": [5, 4, 4], "parents": [None, 0, 0], "position_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8],
        "tokens": ["<s>", "The", " sea", " is", " salt.", " How", " deep", " is", " it?", " Why", " is", " it", " so?"],
        "attention_mask": _matrix(13, lambda query, key: key <= query and not (query >= 9 and 5 <= key < 9)),
        **_BOOLEAN},
    "labels": _named(
        input_ids=list(range(40, 40 + _TOTAL)), labels=[*range(41, 40 + _TOTAL), -100], labels_shifted=True,
        attention_mask=_blocks(), **_BOOLEAN),
    "split": {
        "lengths": [1, 3], "token_bytes": [data.hex() for data in _SPLIT], "attention_mask": _blocks(lengths=[1, 3]),
        "position_ids": [0, 0, 1, 2], **_BOOLEAN},
}.items()}
