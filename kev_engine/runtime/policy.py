"""Policy: who is admitted first when not everybody fits. A rank is given once, at submit, and never changes.

    fifo             in the order of arrival
    shortest-first   fewest tokens first; each step of waiting counts like AGEING_TOKENS tokens fewer
    priority         highest `priority` first; AGEING_STEPS steps of waiting count like one more

Waiting ages everybody alike, so it need not be counted: "n steps older" is the same as "arrived n steps earlier", and
the step of arrival stands in the rank. Later arrivals therefore overtake a story only for so many steps, and nobody
starves; and because ranks stand still, two stories can never preempt each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kev_engine.runtime.sequence import Sequence as Story

AGEING_TOKENS = 16
AGEING_STEPS = 64


@dataclass(frozen=True)
class Policy:
    """`rank(group, step)`: the rank of stories that are admitted together, a shared context and its readers, that
    arrived at this step; lower goes first, equal ranks in the order of arrival.

    With `preempts`, a waiting story of higher priority and better rank takes the place of running ones.
    """

    name: str
    rank: Callable[[Sequence[Story], int], float]
    preempts: bool = False


def _arrival(group: Sequence[Story], step: int) -> float:
    return 0


def _length(group: Sequence[Story], step: int) -> float:
    shortest = min((story.num_projected for story in group if not story.is_context), default=0)
    return shortest + step * AGEING_TOKENS


def _priority(group: Sequence[Story], step: int) -> float:
    return step / AGEING_STEPS - max(story.priority for story in group)


FIFO = Policy("fifo", _arrival)
POLICIES = {
    policy.name: policy
    for policy in (FIFO, Policy("shortest-first", _length), Policy("priority", _priority, preempts=True))
}
