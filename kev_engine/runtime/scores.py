"""Prompt scores: which rows of a step predict which tokens of a prompt, and whose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kev_engine.isolation.layout import IntArray
from kev_engine.runtime.reply import Reply
from kev_engine.runtime.scheduler import Scheduled


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Row `rows[n]` of a step predicts token `targets[n]`, the prompt's token `positions[n]` of `replies[n]`."""

    rows: IntArray
    targets: IntArray
    positions: IntArray
    replies: tuple[Reply, ...]


def scored_rows(scheduled: Scheduled, replies: Iterable[Reply]) -> ScoredRows | None:
    """The rows of this step that predict prompt tokens of these replies; None where no reply asked for them.

    A prompt's tokens are spread over its own sequence and the contexts above it. The last row of a context predicts the
    first token of each of its readers.
    """
    if not any(sequence.is_scored for sequence in scheduled.sequences):
        return None
    parts: list[tuple[IntArray, IntArray, IntArray]] = []
    owners: list[Reply] = []
    edges = list(pairwise(scheduled.plan.cu_seqlens_q.tolist()))
    for reply in replies:
        if not reply.question.prompt_logprobs:
            continue
        prompt = reply.prompt_token_ids
        for index, sequence in enumerate(scheduled.sequences):
            if sequence not in reply.sequence.lineage:
                continue
            chunk = scheduled.plan.chunks[index]
            positions = np.arange(chunk.start + 1, min(chunk.num_keys + 1, len(prompt)), dtype=np.int64)
            parts.append((positions + edges[index][0] - chunk.start - 1, prompt[positions], positions))
            owners += [reply] * len(positions)
    if not owners:
        return None
    rows, targets, positions = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ScoredRows(rows, targets, positions, tuple(owners))
