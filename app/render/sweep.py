"""A sweep as the browser gets it: the samples, the figures of each temperature, and the knee."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app import sweep
from app.i18n import say
from app.run_view import CardView, RunView, SweepView

if TYPE_CHECKING:
    from app.sweep import Point


def sweep_parts(letter: str, swept: SweepView, view: RunView, language: str) -> dict[str, object]:
    """What stands under a card whose question was swept. Figures come once every sample is finished."""
    cards = [view.cards.get(sweep.question_id(letter, value), CardView()) for value in swept.temperatures]
    is_done = all(card.answer is not None and len(card.samples) == card.num_samples for card in cards)
    points = [_point(value, card, swept) for value, card in zip(swept.temperatures, cards, strict=True)]
    bend = sweep.knee(points) if is_done else None
    return {
        "groups": [[value, [sample.text for sample in card.samples]]
                   for value, card in zip(swept.temperatures, cards, strict=True)],
        "points": [[point.temperature, point.distinct_1, point.distinct_2, point.agreement, point.accuracy]
                   for point in points] if is_done else [],
        "knee": bend,
        "told": _told(points, bend, swept, cards, language) if is_done else _progress(cards, language),
    }


def _point(temperature: float, card: CardView, swept: SweepView) -> Point:
    samples = card.samples
    return sweep.measured(temperature, [sample.token_ids for sample in samples], [sample.text for sample in samples],
                          swept.expected)


def _progress(cards: list[CardView], language: str) -> str:
    return say(language, "sweep.progress", count=sum(card.num_tokens for card in cards))


def _told(points: list[Point], bend: int | None, swept: SweepView, cards: list[CardView], language: str) -> str:
    knee = say(language, "sweep.no_knee") if bend is None else say(
        language, "sweep.knee", temperature=f"{points[bend].temperature:g}")
    return say(language, "sweep.told", knee=knee, samples=cards[0].num_samples, seed=swept.seed)
