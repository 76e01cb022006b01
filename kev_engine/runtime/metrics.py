"""What a step consisted of and what a run cost beside its time, as typed values."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.sequence import Sequence


@dataclass(frozen=True)
class Batch:
    """The composition of one forward, over all runs, and the queue behind it.

    `num_decoding` sequences went on with their answers, `num_prompts` gave `prompt_tokens` together. `num_running`
    sequences hold memory, contexts included; `num_waiting` hold none.
    """

    num_decoding: int
    num_prompts: int
    prompt_tokens: int
    num_running: int
    num_waiting: int


def batch(scheduled: Scheduled, scheduler: Scheduler) -> Batch:
    """The composition of a forward that was just committed."""
    pairs = zip(scheduled.plan.chunks, scheduled.sequences, strict=True)
    prompts = [chunk.num_new for chunk, sequence in pairs if chunk.start < sequence.num_prompt]
    return Batch(
        len(scheduled.sequences) - len(prompts), len(prompts), sum(prompts),
        len(scheduler.running), len(scheduler.waiting),
    )


@dataclass(frozen=True)
class Reuse:
    """What the sequences of a run took from the prefix cache, and how often they had to give their memory back."""

    prefix_hits: int
    cached_tokens: int
    preemptions: int


def reuse(sequences: Many[Sequence]) -> Reuse:
    """The reuse of a run; what a shared context took is counted once, not for each reader."""
    cached = [sequence.num_cached for sequence in sequences if sequence.parent is None]
    return Reuse(
        prefix_hits=sum(count > 0 for count in cached),
        cached_tokens=sum(cached),
        preemptions=sum(max(sequence.num_admissions - 1, 0) for sequence in sequences),
    )
