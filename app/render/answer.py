"""One card's answer as the browser gets it: texts and sentences, which it shows as text and never as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.i18n import say, sentence
from app.render.text import to_json
from app.run_view import QUEUED, CardView, RunView, SampleView
from kev_engine.schema import DEFAULT_ORDER

if TYPE_CHECKING:
    from kev_engine import Answer, SamplingParams


def answer(card: CardView | None, view: RunView, question_id: str, language: str) -> str:
    """The answers of one card so far and the lines of facts under them, as JSON; empty for a card that never ran."""
    if card is None:
        return ""
    parts: dict[str, object] = {"run": card.run, "earlier": card.run != view.number, "status": card.status}
    if card.error is not None:
        parts["mistake"] = sentence(card.error, language)
    else:
        parts["samples"] = [_sample(card.sample(k), card, language) for k in range(card.num_samples)]
        if card.status == QUEUED:
            parts["waiting"] = _progress(view, question_id, language)
    return to_json(parts)


def _sample(sample: SampleView, card: CardView, language: str) -> dict[str, object]:
    parts: dict[str, object] = {"text": sample.text, "is_done": sample.answer is not None or card.is_cut}
    status = card.status if sample.answer is None else sample.answer.finish_reason
    facts = [say(language, f"status.{status}"), say(language, "answer.tokens", count=len(sample.token_ids))]
    if sample.answer is not None:
        facts += _measured(sample.answer, language)
        parts["sampling"] = _sampling(sample.answer, language)
        if sample.answer.error is not None:
            parts["mistake"] = sample.answer.error
    return {**parts, "facts": facts}


def _progress(view: RunView, question_id: str, language: str) -> str:
    """How much of a waiting question's prompt was read, its shared context included."""
    segment = _segment_of(view, question_id)
    if view.plan is None or segment is None:
        return say(language, "status.queued")
    layout = view.plan.layout
    lineage = layout.lineage(segment)
    done = sum(view.executed[member] for member in lineage)
    if not done:
        return say(language, "status.queued")
    return say(language, "status.prefill", done=done, total=sum(layout.lengths[member] for member in lineage))


def _measured(result: Answer, language: str) -> list[str]:
    facts: list[str] = []
    if result.ttft_ms is not None:
        facts.append(say(language, "answer.ttft", ms=f"{result.ttft_ms:.0f}"))
    if result.tpot_ms:
        facts.append(say(language, "answer.rate", rate=f"{1000 / result.tpot_ms:.1f}"))
    if result.cached_tokens:
        facts.append(say(language, "answer.cached", count=result.cached_tokens))
    return facts


def _sampling(result: Answer, language: str) -> str:
    """The whole tuple that the answer was drawn with; what is switched off is left out, the order never."""
    params = result.sampling
    shown = [say(language, "sampling.temperature", value=f"{params.temperature or 0:g}",
                 version=result.temperature_version)]
    shown += [f"{say(language, name)} {getattr(params, name):g}" for name, off in _OFF.items()
              if getattr(params, name) != off]
    if params.temperature:
        shown.append(say(language, "answer.seed", seed=params.seed))
    shown.append(say(language, "sampling.max", count=result.max_new_tokens))
    return " · ".join([*shown, _order(params, language)])


_OFF = {"top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}


def _order(params: SamplingParams, language: str) -> str:
    return " → ".join(say(language, f"step.{name}") for name in (params.order or DEFAULT_ORDER))


def _segment_of(view: RunView, question_id: str) -> int | None:
    infos = view.plan.segments if view.plan else ()
    return next((k for k, info in enumerate(infos) if not info.is_shared and info.name == question_id), None)
