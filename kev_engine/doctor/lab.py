"""The faulty arrays of an audited run, as a person would hold them: what the doctor is shown to name the fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kev_engine.isolation.faults import Fault
from kev_engine.isolation.layout import IntArray, PackedLayout
from kev_engine.isolation.mask import BoolArray, dense, dense_step
from kev_engine.isolation.plan import StepPlan

if TYPE_CHECKING:
    from kev_engine.runtime.audit import Audit

NAMES: Mapping[str, str] = {
    "shift-interval": "CROSS_SEGMENT_LEAK", "no-causal": "LEAK_FUTURE", "inverted": "MASK_INVERTED",
    "float01": "MASK_VALUES_AS_BIAS", "ones-2d": "BOUNDARY_CONFLICT", "no-reset": "POS_NOT_RESET",
    "running-borders": "POS_NOT_RESET", "one-cell": "CROSS_SEGMENT_LEAK", "adapter-shift": "ADAPTER_MISROUTED",
}
"""The code by which the doctor names each fault of isolation/faults.py."""


def broken_batch(audit: Audit, fault: Fault) -> dict[str, Any]:
    """The prompts of the audited run with the keys of docs/doctor.md, as the fault left them.

    Cells, positions and adapters are those of the executed steps.
    """
    layout = audit.layout
    batch: dict[str, Any] = {"segments": [list(interval) for interval in layout.intervals], "position_kind": "rope",
                             "position_ids": _positions(audit)}
    if any(parent is not None for parent in layout.parents):
        batch["parents"] = list(layout.parents)
    if fault.name in ("ones-2d", "running-borders"):
        # What a transformers forward makes of these is what was executed.
        batch["consumer"] = "hf"
        if fault.name == "ones-2d":
            batch["attention_mask"] = np.ones((1, layout.num_tokens), dtype=np.int64)
        return batch
    if fault.adds_mask:
        mask = dense(layout)[None, None].astype(np.float32)
        return batch | {"attention_mask": mask, "dtype": "float32", "consumer": "hf", "attn_implementation": "sdpa"}
    batch |= {"attention_mask": executed_cells(audit, fault)[None, None], "consumer": "sdpa"}
    if any(info.adapter is not None for info in audit.segments):
        batch["adapter"] = {"names": [info.adapter for info in audit.segments], "token_names": _adapters(audit)}
    return batch


def executed_cells(audit: Audit, fault: Fault | None) -> BoolArray:
    """`[T, T]`: which prompt token could read which in the steps that were executed."""
    layout = audit.layout
    found = np.zeros((layout.num_tokens, layout.num_tokens), dtype=np.bool_)
    for step in audit.steps:
        right = dense_step(step.plan)
        cells = right if fault is None else fault.broken_cells(step.plan, right)
        rows = _row_tokens(layout, step.plan, step.segments)
        keys = _key_tokens(layout, step.plan, step.segments)
        queries, read = np.nonzero(cells[np.ix_(rows >= 0, keys >= 0)])
        found[rows[rows >= 0][queries], keys[keys >= 0][read]] = True
    return found


def _positions(audit: Audit) -> IntArray:
    positions = np.zeros(audit.layout.num_tokens, dtype=np.int64)
    for step in audit.steps:
        rows = _row_tokens(audit.layout, step.plan, step.segments)
        positions[rows[rows >= 0]] = step.plan.position_ids[rows >= 0]
    return positions


def _adapters(audit: Audit) -> list[str | None]:
    """The adapter each prompt token went through."""
    layout = audit.layout
    used = np.zeros(layout.num_tokens, dtype=np.int64)
    for step in audit.steps:
        rows = _row_tokens(layout, step.plan, step.segments)
        used[rows[rows >= 0]] = step.plan.adapter_ids[rows >= 0]
    names = {info.adapter_id: info.adapter for info in audit.segments}
    return [names[int(number)] for number in used]


def _row_tokens(layout: PackedLayout, plan: StepPlan, segments: Sequence[int]) -> IntArray:
    """`[T]`: the prompt token that each row of a step is; −1 for a generated one."""
    return _tokens(layout, np.asarray(segments)[plan.segment_ids], plan.story_position_ids)


def _key_tokens(layout: PackedLayout, plan: StepPlan, segments: Sequence[int]) -> IntArray:
    """`[K]`: the prompt token that each key of a step is; −1 for a generated one."""
    return _tokens(layout, np.asarray(segments)[plan.key_sequences], plan.key_positions)


def _tokens(layout: PackedLayout, segments: IntArray, positions: IntArray) -> IntArray:
    """Where story positions of segments lie in the packed row; an ancestor's position lies in the ancestor."""
    starts = np.asarray(layout.position_starts, dtype=np.int64)
    parents = np.asarray([-1 if parent is None else parent for parent in layout.parents], dtype=np.int64)
    owner = segments.astype(np.int64)
    while (above := (owner >= 0) & (positions < starts[owner])).any():
        owner = np.where(above, parents[owner], owner)
    first, length = layout.cu_seqlens[:-1].astype(np.int64)[owner], np.asarray(layout.lengths)[owner]
    offset = positions - starts[owner]
    return np.where(offset < length, first + offset, -1)
