"""What a stream tells its reader, in the order things happen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kev_engine.errors import KevError
from kev_engine.isolation.layout import IntArray, PackedLayout, SegmentArray
from kev_engine.isolation.plan import Chunk, StepPlan
from kev_engine.runtime.metrics import Batch
from kev_engine.schema import Answer, RunStats, TokenLogprob

FREE, OTHERS, RESERVED = -1, -2, -3


@dataclass(frozen=True)
class SegmentInfo:
    """What segment k of a run's layout is: a question (or its n-th `sample`), or a shared context (`is_shared`)."""

    name: str
    token_ids: tuple[int, ...]
    adapter: str | None = None
    adapter_id: int = 0
    is_shared: bool = False
    sample: int = 0


@dataclass(frozen=True)
class PlanMade:
    """The run's prompts as packed, before the first forward. `segments[k]` describes segment k of `layout`."""

    layout: PackedLayout
    segments: tuple[SegmentInfo, ...]
    kv_bytes_predicted: int
    kv_bytes_budget: int


@dataclass(frozen=True, eq=False)
class KVUsage:
    """KV memory after a step, in bytes, and the block map.

    `bytes_kept` is free memory whose content the prefix cache can still give back.

    A block is used once it holds tokens; a sequence reserves at its start all blocks it may come to need.
    `block_owner[b]` is the segment (of the run's layout) that a used block belongs to, OTHERS, RESERVED or FREE; block
    0 is the zero block and belongs to nobody. `block_refs` counts the tables a block stands in (2 or more: shared),
    `block_generation` how often it was handed out.
    """

    bytes_used: int
    bytes_reserved: int
    bytes_budget: int
    bytes_peak: int
    bytes_by_segment: tuple[int, ...]
    bytes_others: int
    block_owner: IntArray
    block_refs: SegmentArray
    block_generation: SegmentArray
    bytes_kept: int = 0


@dataclass(frozen=True, eq=False)
class Prefilling:
    """A forward over many prompt tokens under way: its tokens are in layer `layer` (from 1) of `num_layers`.

    It comes before the Step of the same `plan` and `segments`, a few times a second.
    """

    plan: StepPlan
    segments: tuple[int, ...]
    layer: int
    num_layers: int


@dataclass(frozen=True, eq=False)
class Step:
    """One forward that this run took part in.

    `segments[c]` is the segment (of the run's layout) that chunk c of `plan` belongs to, or OTHERS. `lengths[k]` is
    the number of tokens of segment k after the step, prompt and generated; `cached[k]` of its story's prompt tokens
    came from the prefix cache. `batch` is what the forward was made of. The last `dropped[c]` tokens of chunk c are
    guesses of this run that were not drawn (empty: none); nothing reads them again.
    """

    index: int
    plan: StepPlan
    segments: tuple[int, ...]
    lengths: tuple[int, ...]
    kv: KVUsage
    plan_ms: float
    forward_ms: float
    sample_ms: float
    cached: tuple[int, ...] = ()
    batch: Batch | None = None
    dropped: tuple[int, ...] = ()

    @property
    def kept_chunks(self) -> tuple[Chunk, ...]:
        """The plan's chunks without what was dropped."""
        if not any(self.dropped):
            return self.plan.chunks
        pairs = zip(self.plan.chunks, self.dropped, strict=True)
        return tuple(replace(chunk, num_new=chunk.num_new - count) for chunk, count in pairs)


@dataclass(frozen=True)
class TextDelta:
    """New readable text of a question; `token_ids` are the tokens drawn since the last delta.

    `logprobs[i]` and `alternatives[i]` belong to `token_ids[i]`; both are empty where they were not asked for.
    """

    question_id: str
    text: str
    token_ids: tuple[int, ...]
    sample: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    alternatives: tuple[tuple[TokenLogprob, ...], ...] = ()


@dataclass(frozen=True)
class Finished:
    answer: Answer


@dataclass(frozen=True)
class Refused:
    """A question that never ran, or that ended in an error of its own; the others go on.

    `answer` is what there is of its answer: the error's sentence and, where it ran, the tokens before.
    """

    question_id: str
    error: KevError
    answer: Answer


@dataclass(frozen=True)
class RunFinished:
    """The last event of every stream."""

    stats: RunStats


Event = PlanMade | Prefilling | Step | TextDelta | Finished | Refused | RunFinished
