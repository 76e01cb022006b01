"""Repair: the arrays of a batch as they should be, to be handed over again or copied as Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.layouts import Segmentation

if TYPE_CHECKING:
    from kev_engine.doctor.judge import Judged

# Codes of cells: the mask, or whatever else the consumer obeys, has to be built anew.
CELL_CODES = frozenset((
    "CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "HIDDEN_KEYS", "ROW_EMPTY", "FORBIDDEN_CELL", "MASK_INVERTED",
    "MASK_VALUES_AS_BIAS", "MASK_SHAPE", "MASK_DTYPE", "MASK_NAN", "MASK_OVERFLOW", "MASK_SENTINEL_UNREPRESENTABLE",
    "MASK_SENTINEL_WEAK", "SEGMENT_ID_MASK", "CAUSAL_MISSING", "CAUSAL_UNWANTED", "CAUSAL_AND_MASK", "ALIGN_TOP_LEFT",
    "BACKEND_IGNORES_MASK", "BACKEND_NO_ARBITRARY_MASK", "WINDOW_IGNORED", "WINDOW_OFF_BY_ONE", "BOUNDARY_CONFLICT",
))
# The key that a finding's `expected` replaces.
KEYS = {
    "POS_NOT_RESET": "position_ids", "POS_START": "position_ids", "POS_FROZEN": "position_ids",
    "POS_COUNTS_PADS": "position_ids", "POS_LEFT_PAD": "position_ids", "PSEUDO_SEGMENTS": "position_ids",
    "POS_SHARED_ACROSS_ROWS": "decode_positions", "CU_DTYPE": "cu_dtype", "CU_MAX_SEQLEN": "max_seqlen",
    "PAD_SIDE": "padding_side", "PAD_IS_EOS": "attention_mask", "PAD_MASK_MISSING": "attention_mask",
    "READ_INDEX": "read_index", "LAST_TOKEN": "read_index", "SPAN_OFF_BY_ONE": "labels", "SPAN_OVERRUN": "labels",
    "LABEL_CROSSES_BOUNDARY": "labels", "GQA_ORDER": "head_map", "ADAPTER_SCALE": "adapter.given_scaling",
    "ADAPTER_MISROUTED": "adapter.token_names",
}
# A mask is written out up to this many tokens; above it is named, or left to the Python form.
MOST_WRITTEN = 128


def repairs(facts: Facts, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """The corrected values by key of docs/doctor.md; None for a key that has to go.

    Only what has exactly one right value is named; diagnosing the description with these in place finds it right.
    """
    found: dict[str, Any] = {}
    if facts.axes_as_rows and facts.batch.position_ids is not None:
        found["position_ids"] = facts.batch.position_ids[:, None].tolist()
    for finding in findings:
        key = _key(finding)
        if key is not None and finding.expected is not None:
            found.setdefault(key, _filled(finding.expected) if key == "position_ids" else finding.expected)
    if any(finding.code in CELL_CODES and finding.level != "note" for finding in findings):
        found |= _cells(facts)
    return found


def _filled(value: Any) -> Any:
    """The value with numbers where any will do: positions of padding go on counting, from 0 before the first token."""
    if not isinstance(value, list):
        return value
    filled: list[Any] = []
    for entry in value:
        filled.append((filled[-1] + 1 if filled else 0) if entry is None else _filled(entry))
    return filled


def _key(finding: Finding) -> str | None:
    if finding.code == "BOUNDARY_CONFLICT" and finding.variant == "inner":
        return "position_ids"
    if finding.variant == "decode":
        return "decode_positions"
    if finding.code == "PAD_IS_EOS" and finding.variant == "labels":
        return "labels"
    if finding.code == "SPAN_OFF_BY_ONE" and finding.variant == "segment":
        return f"spans.{finding.facts['name']}"
    if finding.code == "MASK_INVERTED" and finding.variant == "padding":
        return "attention_mask"
    if finding.code.startswith("CU_") and "key" in finding.facts:
        return str(finding.facts["key"])
    return KEYS.get(finding.code)


def _cells(facts: Facts) -> dict[str, Any]:
    """What makes the consumer allow the right cells."""
    batch = facts.batch
    if not facts.judged or batch.forbid is not None or facts.num_rows != 1:
        return {}
    judged = facts.judged[0]
    if batch.consumer == "flash_varlen" or batch.attn_implementation == "flash_attention_2":
        return {} if facts.segments is None else _varlen(facts, facts.segments)
    if judged.source == "position_ids":
        return {}
    mask = _mask(facts, judged)
    if mask is None:
        return {}
    found: dict[str, Any] = {"attention_mask": mask, "mask_dtype": _dtype(facts), "mask_meaning": None}
    if batch.mask_planes:
        found["mask_planes"] = None
    if batch.consumer == "sdpa" and batch.is_causal:
        found["is_causal"] = False
    return found


def _varlen(facts: Facts, segments: Segmentation) -> dict[str, Any]:
    """Flash attention knows causal blocks of whole sequences only: borders, and no mask."""
    batch = facts.batch
    if any(parent is not None for parent in segments.layout.parents) or -1 in segments.names:
        return {}
    found: dict[str, Any] = {"attention_mask": None, "mask_planes": None, "mask_dtype": None, "mask_meaning": None}
    if batch.consumer == "flash_varlen":
        cu = segments.layout.cu_seqlens.tolist()
        both = batch.cu_seqlens_q is not None
        found |= {"cu_seqlens_q": cu, "cu_seqlens_k": cu} if both else {"cu_seqlens": cu}
        return {key: value for key, value in found.items() if value is not None or getattr(batch, key) is not None}
    found["position_ids"] = (segments.layout.position_ids + batch.position_start).tolist()
    return {key: value for key, value in found.items() if value is not None or getattr(batch, key) is not None}


def _dtype(facts: Facts) -> str:
    return "bool" if form_of(facts) != "additive" else (facts.batch.dtype or "float32")


def form_of(facts: Facts) -> str:
    """How the consumer wants its mask: `keep`, `block` or `additive`."""
    batch = facts.batch
    if batch.consumer == "mha":
        return "block"
    adds = batch.consumer == "eager" or batch.attn_implementation in ("eager", "flex_attention")
    return "additive" if adds else "keep"


def _mask(facts: Facts, judged: Judged) -> Any:
    """The right mask: written out where it is small, named where it is clean blocks, else None."""
    form, batch, queries = form_of(facts), facts.batch, judged.should.num_queries
    fill = _least(batch.dtype)
    leading = [] if batch.consumer == "mha" or (batch.consumer is None and facts.row_mask is None) else [1, 1]
    named = _named(facts, judged)
    if named is not None:
        extra: dict[str, Any] = {"as": form} | ({"sentinel": fill} if form == "additive" else {})
        return {"block_causal": named} | extra | ({"repeat": leading} if leading else {})
    if max(queries, judged.should.num_keys) > MOST_WRITTEN:
        return None
    allowed = judged.should.dense()
    kept = allowed.astype(int)
    values: Any = {"keep": kept, "block": 1 - kept, "additive": np.where(allowed, 0.0, fill)}[form]
    return values.reshape(*leading, *allowed.shape).tolist()


def _named(facts: Facts, judged: Judged) -> list[int] | None:
    """The lengths of causal blocks where the right cells are exactly those."""
    segments = judged.segments
    if segments is None or segments.num_tokens <= MOST_WRITTEN:
        return None
    plain = not any(parent is not None for parent in segments.layout.parents)
    return list(segments.layout.lengths) if plain and segments.visible().same(judged.should) else None


def _least(dtype: str | None) -> float:
    return {"float16": -65504.0, "bfloat16": -3.3895313892515355e38}.get(dtype or "", float(np.finfo(np.float32).min))


def repaired(description: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The description with the corrected values in place."""
    whole = dict(description)
    for key, value in found.items():
        name, _, inner = key.partition(".")
        if inner:
            whole[name] = dict(whole.get(name) or {}) | {inner: value}
        elif value is None:
            whole.pop(name, None)
        else:
            whole[name] = value
    return whole
