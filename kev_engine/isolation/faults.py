"""The classic breakages of a packed batch, each as one small change to what a right step would do.

They exist to be shown and to prove that the proofs notice. Only the `dense` backend executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kev_engine.errors import InvalidField
from kev_engine.isolation.mask import BoolArray
from kev_engine.isolation.plan import StepPlan

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Fault:
    """One breakage. `cells` changes the allowed cells `[T, K]`, `plan` what the model is fed.

    `adds_mask`: the 0/1 mask is added to the scores and hides nothing.
    """

    name: str
    summary: str
    cells: Callable[[StepPlan, BoolArray], BoolArray] | None = None
    plan: Callable[[StepPlan, Mapping[int, int]], StepPlan] | None = None
    adds_mask: bool = False

    def broken_cells(self, plan: StepPlan, allowed: BoolArray) -> BoolArray:
        """What attention may read under this fault, given the right cells `[T, K]`."""
        if self.adds_mask:
            return np.ones_like(allowed)
        return allowed if self.cells is None else self.cells(plan, allowed)

    def broken_plan(self, plan: StepPlan, row_starts: Mapping[int, int]) -> StepPlan:
        """What the model is fed under this fault; `row_starts` says where each sequence's prompt lies in the row."""
        return plan if self.plan is None else self.plan(plan, row_starts)


def key_rows(plan: StepPlan) -> npt.NDArray[np.int64]:
    """`[K]`: the row of this step that writes each key, or −1 for a key written in an earlier step."""
    starts = np.array([chunk.start for chunk in plan.chunks], dtype=np.int64)[plan.key_sequences]
    first_rows = plan.cu_seqlens_q[:-1].astype(np.int64)[plan.key_sequences]
    return np.where(plan.key_positions >= starts, first_rows + plan.key_positions - starts, -1)


def _arrived(plan: StepPlan) -> BoolArray:
    """`[T, K]`: the key lies before the query in the packed row, whoever they belong to."""
    arrived: BoolArray = key_rows(plan)[None, :] <= np.arange(plan.num_tokens)[:, None]
    return arrived


def _same_sequence(plan: StepPlan) -> BoolArray:
    return np.equal(plan.segment_ids[:, None], plan.key_sequences[None, :])


def _shift_interval(plan: StepPlan, allowed: BoolArray) -> BoolArray:
    # Every border lies one token late: the first token of a segment counts as the last of the one before.
    query_side = plan.segment_ids - (plan.story_position_ids == 0)
    key_side = plan.key_sequences - (plan.key_positions == 0)
    shifted: BoolArray = np.maximum(query_side, 0)[:, None] == np.maximum(key_side, 0)[None, :]
    return shifted & _arrived(plan)


def _no_causal(plan: StepPlan, allowed: BoolArray) -> BoolArray:
    return _same_sequence(plan)


def _inverted(plan: StepPlan, allowed: BoolArray) -> BoolArray:
    return ~allowed


def _ones_2d(plan: StepPlan, allowed: BoolArray) -> BoolArray:
    return _arrived(plan)


def _one_cell(plan: StepPlan, allowed: BoolArray) -> BoolArray:
    """The last row of every sequence but the first reads the last key of the sequence before it."""
    broken = allowed.copy()
    for sequence in range(1, plan.num_sequences):
        broken[plan.cu_seqlens_q[sequence + 1] - 1, plan.cu_seqlens_k[sequence] - 1] = True
    return broken


def _no_reset(plan: StepPlan, row_starts: Mapping[int, int]) -> StepPlan:
    offsets = np.array([row_starts[chunk.sequence] for chunk in plan.chunks], dtype=np.int64)
    return replace(plan, position_ids=plan.position_ids + offsets[plan.segment_ids])


def _adapter_shift(plan: StepPlan, row_starts: Mapping[int, int]) -> StepPlan:
    per_sequence = plan.adapter_ids[plan.cu_seqlens_q[:-1]]
    return replace(plan, adapter_ids=np.roll(per_sequence, 1)[plan.segment_ids])


FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("shift-interval", "every segment border lies one token late", cells=_shift_interval),
        Fault("no-causal", "queries may read later tokens of their own segment", cells=_no_causal),
        Fault("inverted", "the mask means the opposite: allowed is hidden and hidden is allowed", cells=_inverted),
        Fault("float01", "the 0/1 mask is added to the scores instead of applied", adds_mask=True),
        Fault("ones-2d", "an all-ones 2-D mask switches packing off: plain causal over the row", cells=_ones_2d),
        Fault("no-reset", "positions run on over segment borders", plan=_no_reset),
        Fault("running-borders", "segment borders are taken from positions that were not restarted", cells=_ones_2d,
              plan=_no_reset),
        Fault("one-cell", "one query of each segment reads one foreign key", cells=_one_cell),
        Fault("adapter-shift", "every segment gets the adapter of its neighbour", plan=_adapter_shift),
    )
}


def fault_named(name: str) -> Fault:
    """The fault of that name. Raises InvalidField naming the known ones."""
    if name not in FAULTS:
        raise InvalidField("fault", name, f"it must be one of {', '.join(FAULTS)}")
    return FAULTS[name]
