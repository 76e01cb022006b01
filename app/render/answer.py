"""One card's answer as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.i18n import say, sentence
from app.render.text import escape
from app.run_view import QUEUED, CardView, RunView

if TYPE_CHECKING:
    from kev_engine import Answer


def answer(card: CardView | None, view: RunView, question_id: str, language: str) -> str:
    """The answer of one card: its text so far, then a line of facts; or the sentence about what is wrong."""
    if card is None:
        return f'<p class="hint">{escape(say(language, "answer.hint"))}</p>'
    parts: list[str] = []
    if card.text:
        parts.append(f'<p class="text"><span>{escape(card.text)}</span></p>')
    elif card.answer is not None and card.error is None and card.answer.error is None:
        parts.append(f'<p class="hint">{escape(say(language, "answer.nothing"))}</p>')
    if card.error is not None:
        parts.append(f'<p class="mistake" role="alert">{escape(sentence(card.error, language))}</p>')
    elif card.answer is not None and card.answer.error is not None:
        parts.append(f'<p class="mistake" role="alert">{escape(card.answer.error)}</p>')
    if card.error is None or card.answer is not None:
        facts = " · ".join(_facts(card, view, question_id, language))
        parts.append(f'<p class="meta" role="status">{escape(facts)}</p>')
    return f'<div data-status="{escape(card.status)}">{"".join(parts)}</div>'


def _facts(card: CardView, view: RunView, question_id: str, language: str) -> list[str]:
    if card.status == QUEUED:
        return [_progress(view, question_id, language)]
    facts = [say(language, f"status.{card.status}"), say(language, "answer.tokens", count=len(card.token_ids))]
    if card.answer is not None:
        facts += _measured(card.answer, language)
    return facts


def _progress(view: RunView, question_id: str, language: str) -> str:
    """How much of a waiting question's prompt was read: it is told apart from one that has not begun."""
    segment = _segment_of(view, question_id)
    if view.plan is None or segment is None or view.executed[segment] == 0:
        return say(language, "status.queued")
    return say(language, "status.prefill", done=view.executed[segment], total=view.plan.layout.lengths[segment])


def _measured(result: Answer, language: str) -> list[str]:
    facts: list[str] = []
    if result.ttft_ms is not None:
        facts.append(say(language, "answer.ttft", ms=f"{result.ttft_ms:.0f}"))
    if result.tpot_ms:
        facts.append(say(language, "answer.rate", rate=f"{1000 / result.tpot_ms:.1f}"))
    if result.sampling.temperature and result.sampling.seed is not None:
        facts.append(say(language, "answer.seed", seed=result.sampling.seed))
    return facts


def _segment_of(view: RunView, question_id: str) -> int | None:
    infos = view.plan.segments if view.plan else ()
    return next((k for k, info in enumerate(infos) if not info.is_shared and info.name == question_id), None)
