"""Batch: whatever a person has in hand when a packed or padded batch misbehaves, checked for form but not for sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from kev_engine.doctor import fields
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.masks import MOST_TOKENS, Mask, read_mask
from kev_engine.errors import InvalidField

Interval = tuple[int, int]


@dataclass(frozen=True)
class Adapter:
    """Facts about a LoRA adapter; None = not said."""

    r: int | None = None
    lora_alpha: float | None = None
    alpha_missing: bool = False
    use_rslora: bool = False
    given_scaling: float | None = None
    weight: float = 1.0
    matched_modules: int | None = None
    b_is_zero: bool = False
    names: tuple[str | None, ...] | None = None
    token_names: tuple[str | None, ...] | None = None
    loaded: tuple[str, ...] | None = None
    rows: int | None = None
    num_beams: int | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """The fields of a batch description; None = not said. Arrays keep the number of axes they came with.

    `pad_segments` and `parents` are indexes into the segments; `forbid` holds ((query, query end), (key, key end)).
    """

    lengths: tuple[int, ...] | None = None
    segments: tuple[Interval, ...] | None = None
    parents: tuple[int | None, ...] | None = None
    pad_segments: tuple[int, ...] = ()
    forbid: tuple[tuple[Interval, Interval], ...] | None = None
    want_causal: bool = True
    total: int | None = None
    input_ids: IntArray | None = None
    tokens: tuple[str, ...] | None = None
    token_bytes: tuple[bytes, ...] | None = None
    token_offsets: tuple[Interval, ...] | None = None
    token_roles: tuple[str, ...] | None = None
    special_tokens_mask: IntArray | None = None
    attention_mask: Mask | None = None
    mask_planes: tuple[Mask, ...] | None = None
    mask_meaning: str | None = None
    mask_dtype: str | None = None
    dtype: str | None = None
    device: str | None = None
    bias_width: int | None = None
    position_ids: IntArray | None = None
    past_length: int | None = None
    position_kind: str | None = None
    position_start: int = 0
    decode_positions: IntArray | None = None
    cu_seqlens: tuple[int, ...] | None = None
    cu_seqlens_q: tuple[int, ...] | None = None
    cu_seqlens_k: tuple[int, ...] | None = None
    cu_dtype: str | None = None
    max_seqlen: int | None = None
    q_len: int | None = None
    kv_len: int | None = None
    is_causal: bool | None = None
    consumer: str | None = None
    attn_implementation: str | None = None
    library: str | None = None
    sliding_window: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    layer_types: tuple[str, ...] = ()
    head_map: tuple[int, ...] | None = None
    enable_gqa: bool | None = None
    padding_side: str | None = None
    pad_token_id: int | None = None
    eos_token_id: int | None = None
    bos_token_id: int | None = None
    task: str | None = None
    read_index: int | tuple[int, ...] | None = None
    labels: IntArray | None = None
    labels_shifted: bool = False
    spans: Mapping[str, Interval | None] | None = None
    paths: Mapping[str, tuple[int, ...]] | None = None
    special_ids: Mapping[str, tuple[int, ...]] | None = None
    template_markers: Mapping[str, tuple[int, ...]] | None = None
    text_starts_with_bos: bool | None = None
    add_special_tokens: bool | None = None
    adapter: Adapter | None = None

    @property
    def window(self) -> int | None:
        """The sliding window, or None where there is none (0, −1 and null all say so)."""
        return self.sliding_window if self.sliding_window is not None and self.sliding_window > 0 else None


def read_batch(description: Mapping[str, Any], folder: Path | None = None) -> Batch:
    """The batch a description holds; mask files are looked up in `folder`.

    A key that is null counts as not given. Raises InvalidField naming the key at fault.
    """
    entries = fields.table("batch", description)
    values: dict[str, Any] = {}
    for key, value in entries.items():
        if key not in READERS and key not in MASK_KEYS:
            near = get_close_matches(key, [*READERS, *MASK_KEYS], n=1)
            way_out = f"no such key is known; did you mean {near[0]!r}?" if near else "no such key is known"
            raise InvalidField(key, value, way_out)
        if value is not None:
            values[key] = _read_mask_key(key, value, folder) if key in MASK_KEYS else READERS[key](key, value)
    if values.get("cu_seqlens") is not None and "cu_dtype" not in values and hasattr(entries["cu_seqlens"], "detach"):
        values["cu_dtype"] = str(entries["cu_seqlens"].dtype).removeprefix("torch.")
    mask = values.get("attention_mask")
    if mask is not None and mask.dtype is not None:
        values.setdefault("mask_dtype", mask.dtype)
    return _related(Batch(**values))


def _read_mask_key(key: str, value: Any, folder: Path | None) -> Any:
    if key == "attention_mask":
        return read_mask(key, value, folder)
    planes = tuple(read_mask(f"{key}[{index}]", plane, folder) for index, plane in enumerate(fields.items(key, value)))
    if not planes:
        raise InvalidField(key, [], "it must hold at least one mask")
    return planes


def _related(batch: Batch) -> Batch:
    """The batch, after the checks that look at several keys together."""
    if batch.lengths is not None and batch.segments is not None:
        ends = [end for _, end in batch.segments]
        if [end - start for start, end in batch.segments] != list(batch.lengths) or list(batch.lengths) != [
            end - start for start, end in zip([0, *ends], ends, strict=False)
        ]:
            raise InvalidField("segments", list(batch.segments), "it does not agree with lengths; give one of the two")
    if batch.parents is not None:
        _check_parents(batch)
    count = len(batch.segments or batch.lengths or ())
    for index in batch.pad_segments:
        if index >= count:
            raise InvalidField("pad_segments", index, f"there are only {count} segments")
    if batch.segments is not None:
        ordered = sorted((interval, index) for index, interval in enumerate(batch.segments))
        for ((_, end), before), ((start, _), index) in pairwise(ordered):
            if start < end:
                raise InvalidField(f"segments[{index}]", start,
                                   f"segment {before} goes on to {end}; segments must not overlap")
    if (batch.cu_seqlens_q is None) != (batch.cu_seqlens_k is None):
        missing = "cu_seqlens_q" if batch.cu_seqlens_q is None else "cu_seqlens_k"
        raise InvalidField(missing, None, "cu_seqlens_q and cu_seqlens_k belong together; give both, or cu_seqlens")
    if batch.q_len is not None and batch.kv_len is None:
        batch = replace(batch, kv_len=batch.q_len + (batch.past_length or 0))
    if batch.kv_len is not None and batch.q_len is None:
        raise InvalidField("q_len", None, "kv_len needs q_len beside it")
    return batch


def _check_parents(batch: Batch) -> None:
    assert batch.parents is not None
    if batch.segments is not None:
        intervals: list[Interval] = list(batch.segments)
    else:
        ends = [0]
        for length in batch.lengths or ():
            ends.append(ends[-1] + length)
        intervals = list(pairwise(ends))
    if len(batch.parents) != len(intervals):
        raise InvalidField("parents", list(batch.parents),
                           f"it must have one entry for each of the {len(intervals)} segments")
    for index, parent in enumerate(batch.parents):
        if parent is None:
            continue
        if not 0 <= parent < len(intervals):
            raise InvalidField(f"parents[{index}]", parent, f"there are only {len(intervals)} segments")
        if parent == index or intervals[parent][1] > intervals[index][0]:
            raise InvalidField(f"parents[{index}]", parent, "a parent must lie earlier in the row than its child")


# ---------------------------------------------------------------- one reader a key

def _lengths(key: str, value: Any) -> tuple[int, ...]:
    lengths = fields.wholes(key, value, 0)
    if not lengths or sum(lengths) < 1:
        raise InvalidField(key, list(lengths), "it must hold at least one token")
    if sum(lengths) > MOST_TOKENS:
        raise InvalidField(key, sum(lengths), f"at most {MOST_TOKENS} tokens can be judged")
    return lengths


def _interval(key: str, value: Any) -> Interval:
    start, end = fields.wholes(key, value, 0, 2)
    if start > end:
        raise InvalidField(key, [start, end], "the end must not lie before the start")
    if end > MOST_TOKENS:
        raise InvalidField(key, [start, end], f"at most {MOST_TOKENS} tokens can be judged")
    return start, end


def _segments(key: str, value: Any) -> tuple[Interval, ...]:
    found = tuple(_interval(f"{key}[{index}]", entry) for index, entry in enumerate(fields.items(key, value)))
    if not found or all(start == end for start, end in found):
        raise InvalidField(key, list(found), "it must hold at least one token")
    return found


def _parents(key: str, value: Any) -> tuple[int | None, ...]:
    return tuple(None if entry is None else fields.whole(f"{key}[{index}]", entry)
                 for index, entry in enumerate(fields.items(key, value)))


def _forbid(key: str, value: Any) -> tuple[tuple[Interval, Interval], ...]:
    found = []
    for index, entry in enumerate(fields.items(key, value)):
        queries, keys = fields.items(f"{key}[{index}]", entry, 2)
        found.append((_interval(f"{key}[{index}][0]", queries), _interval(f"{key}[{index}][1]", keys)))
    return tuple(found)


def _bytes(key: str, value: Any) -> tuple[bytes, ...]:
    found = []
    for index, entry in enumerate(fields.texts(key, value)):
        try:
            found.append(bytes.fromhex(entry))
        except ValueError:
            raise InvalidField(f"{key}[{index}]", entry, "it must be bytes in hexadecimal, as e7a4be") from None
    return tuple(found)


def _offsets(key: str, value: Any) -> tuple[Interval, ...]:
    return tuple(_interval(f"{key}[{index}]", entry) for index, entry in enumerate(fields.items(key, value)))


def _dtype(key: str, value: Any) -> str:
    name = value if isinstance(value, str) else str(value)
    name = name.removeprefix("torch.").lower()
    aliases = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32",
               "double": "float64", "long": "int64", "int": "int32", "boolean": "bool"}
    name = aliases.get(name, name)
    known = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
             "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")
    if name not in known:
        raise InvalidField(key, value, f"it must be a dtype as torch names it: {', '.join(known)}")
    return name


def _read_index(key: str, value: Any) -> int | tuple[int, ...]:
    value = fields.plain(value)
    return fields.whole(key, value) if isinstance(value, int) else fields.wholes(key, value)


def _spans(key: str, value: Any) -> dict[str, Interval | None]:
    found: dict[str, Interval | None] = {}
    for name, entry in fields.table(key, value).items():
        if entry is None:
            found[name] = None
            continue
        start, end = fields.wholes(f"{key}.{name}", entry, None, 2)
        if start >= 0 and end < start and end >= 0:
            raise InvalidField(f"{key}.{name}", [start, end], "the end must not lie before the start")
        # A search that found nothing answers −1.
        found[name] = None if start < 0 or end < 0 else (start, end)
    return found


def _ids_by_name(key: str, value: Any) -> dict[str, tuple[int, ...]]:
    return {name: fields.wholes(f"{key}.{name}", entry) for name, entry in fields.table(key, value).items()}


def _adapter(key: str, value: Any) -> Adapter:
    entries = fields.table(key, value)
    readers: dict[str, Callable[[str, Any], Any]] = {
        "r": partial(fields.whole, least=1), "lora_alpha": fields.number, "use_rslora": fields.truth,
        "given_scaling": fields.number, "weight": fields.number, "matched_modules": partial(fields.whole, least=0),
        "b_is_zero": fields.truth, "names": _names, "token_names": _names, "loaded": fields.texts,
        "rows": partial(fields.whole, least=0),
        "num_beams": partial(fields.whole, least=1),
    }
    for name in entries:
        if name not in readers:
            raise InvalidField(f"{key}.{name}", entries[name], "no such key is known")
    values = {name: readers[name](f"{key}.{name}", entry) for name, entry in entries.items() if entry is not None}
    missing = "lora_alpha" not in values and ("lora_alpha" in entries or "given_scaling" in values or "r" in values)
    return Adapter(**values, alpha_missing=missing)


def _names(key: str, value: Any) -> tuple[str | None, ...]:
    return tuple(None if entry is None else fields.text(f"{key}[{index}]", entry)
                 for index, entry in enumerate(fields.items(key, value)))


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    return lambda key, value: fields.choice(key, value, allowed)


def _ranks(*ranks: int) -> Callable[[str, Any], IntArray]:
    return lambda key, value: fields.integers(key, value, ranks)


def _cu(key: str, value: Any) -> tuple[int, ...]:
    entries = fields.wholes(key, value)
    if len(entries) < 2:
        raise InvalidField(key, list(entries), "it must hold at least two entries, the first 0 and the last T")
    return entries

_size = partial(fields.whole, least=1)
_count = partial(fields.whole, least=0)

MASK_KEYS = ("attention_mask", "mask_planes")

READERS: dict[str, Callable[[str, Any], Any]] = {
    "lengths": _lengths, "segments": _segments, "parents": _parents,
    "pad_segments": partial(fields.wholes, least=0), "forbid": _forbid, "want_causal": fields.truth, "total": _size,
    "input_ids": _ranks(1, 2), "tokens": fields.texts, "token_bytes": _bytes,
    "token_offsets": _offsets, "token_roles": fields.texts, "special_tokens_mask": _ranks(1, 2),
    "mask_meaning": _one_of("keep", "block", "additive", "segment_ids"),
    "mask_dtype": _dtype, "dtype": _dtype, "device": fields.text, "bias_width": _size,
    "position_ids": _ranks(1, 2, 3), "past_length": _count, "position_kind": _one_of("rope", "absolute"),
    "position_start": fields.whole, "decode_positions": _ranks(1, 2),
    "cu_seqlens": _cu, "cu_seqlens_q": _cu, "cu_seqlens_k": _cu, "cu_dtype": _dtype, "max_seqlen": _count,
    "q_len": _size, "kv_len": _size, "is_causal": fields.truth,
    "consumer": _one_of("hf", "sdpa", "mha", "eager", "flash_varlen", "flex"),
    "attn_implementation": _one_of("sdpa", "eager", "flash_attention_2", "flex_attention"),
    "library": fields.text, "sliding_window": fields.whole, "num_heads": _size, "num_kv_heads": _size,
    "layer_types": fields.texts, "head_map": fields.wholes, "enable_gqa": fields.truth,
    "padding_side": _one_of("left", "right"), "pad_token_id": fields.whole, "eos_token_id": fields.whole,
    "bos_token_id": fields.whole, "task": _one_of("generate", "train", "score"), "read_index": _read_index,
    "labels": _ranks(1, 2), "labels_shifted": fields.truth, "spans": _spans, "paths": _ids_by_name,
    "special_ids": _ids_by_name, "template_markers": _ids_by_name, "text_starts_with_bos": fields.truth,
    "add_special_tokens": fields.truth, "adapter": _adapter,
}
