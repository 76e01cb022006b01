"""A temperature sweep: one question at several temperatures, and what more temperature buys. Pure; docs/sweep.md.

    questions(question, seed)      the same question at each temperature, with several seeded samples each
    measured(samples, expected)    distinct-n, self-agreement and accuracy of the samples at one temperature
    knee(points)                   the temperature from which on more of it buys less, or None
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kev_engine import Question

TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 0.9)
LEAST_SAMPLES = 4
LEAST_GAIN = 0.1
"""A sweep whose diversity rises by less than this from end to end has no knee."""
LEAST_BEND = 0.05
"""Nor has one that stays this close to the straight line."""


@dataclass(frozen=True)
class Point:
    """The samples at one temperature: distinct-1 and distinct-2 in 0…1, self-agreement in 0…1, accuracy or None."""

    temperature: float
    distinct_1: float
    distinct_2: float
    agreement: float
    accuracy: float | None = None


def question_id(letter: str, temperature: float) -> str:
    """The id of a card's question at one temperature; app/board.owner finds the card's letter in it."""
    return f"{letter}@{temperature:g}"


def questions(question: Question, seed: int) -> tuple[Question, ...]:
    """The question once for each temperature, drawn with the same seed, at least LEAST_SAMPLES samples each.

    They are equal but for the temperature, so that the engine stores their prompt once.
    """
    count = max(LEAST_SAMPLES, question.n)
    return tuple(
        replace(question, id=question_id(question.id, temperature), n=count,
                sampling=replace(question.sampling, temperature=temperature, seed=seed))
        for temperature in TEMPERATURES
    )


def measured(temperature: float, samples: Sequence[Sequence[int]], texts: Sequence[str], expected: str) -> Point:
    """What the samples (token ids and texts, in the same order) at one temperature are like."""
    return Point(temperature, distinct(samples, 1), distinct(samples, 2), self_agreement(samples),
                 accuracy(texts, expected) if normal(expected) else None)


def distinct(samples: Sequence[Sequence[int]], size: int) -> float:
    """Distinct-n: different n-grams of tokens over all n-grams of all samples (Li et al. 2016, arXiv:1510.03055)."""
    grams = [tuple(sample[at:at + size]) for sample in samples for at in range(len(sample) - size + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def self_agreement(samples: Sequence[Sequence[int]]) -> float:
    """The mean over all pairs of samples of 2 · LCS / (length + length), in tokens: 1 where all are the same."""
    pairs = list(combinations(samples, 2))
    if not pairs:
        return 1.0
    return sum(_overlap(left, right) for left, right in pairs) / len(pairs)


def _overlap(left: Sequence[int], right: Sequence[int]) -> float:
    if not left and not right:
        return 1.0
    row = [0] * (len(right) + 1)
    for one in left:
        previous = 0
        for at, other in enumerate(right, 1):
            previous, row[at] = row[at], previous + 1 if one == other else max(row[at], row[at - 1])
    return 2 * row[-1] / (len(left) + len(right))


def accuracy(texts: Sequence[str], expected: str) -> float:
    """The share of texts that hold the expected answer as whole words, without regard to case and punctuation."""
    wanted = normal(expected)
    # Scripts without blanks between words are compared by their characters.
    space = " " if wanted.isascii() else ""
    found = [f"{space}{wanted}{space}" in f" {normal(text)} " for text in texts]
    return sum(found) / len(found) if found else 0.0


def normal(text: str) -> str:
    """Words in small letters with one blank between them."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def knee(points: Sequence[Point]) -> int | None:
    """The index of the point where diversity bends most: farthest above the straight line from first to last.

    Diversity is distinct-2, both axes are scaled to 0…1 (the rule of Kneedle, Satopää et al. 2011). Where accuracy is
    known, only points within one sample of the best one count. None where diversity rises by less than LEAST_GAIN, or
    no point that counts lies LEAST_BEND above the line.
    """
    if len(points) < 3:
        return None
    first, last = points[0], points[-1]
    rise = last.distinct_2 - first.distinct_2
    if rise < LEAST_GAIN:
        return None
    best = max((point.accuracy or 0.0 for point in points), default=0.0)
    above = {
        index: (point.distinct_2 - first.distinct_2) / rise
        - (point.temperature - first.temperature) / (last.temperature - first.temperature)
        for index, point in enumerate(points[1:-1], 1)
        if point.accuracy is None or point.accuracy >= best - 1 / LEAST_SAMPLES
    }
    index = max(above, key=lambda at: above[at], default=None)
    return index if index is not None and above[index] > LEAST_BEND else None
