"""One card's answer as the browser gets it: texts and sentences, which it shows as text and never as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.i18n import say, sentence, spoken
from app.render.mask import TokenTexts
from app.render.sweep import sweep_parts
from app.render.text import to_json
from app.render.tokens import token_pieces
from app.run_view import ERROR, QUEUED, STREAMING, CardView, RunView, SampleView
from app.sweep import question_id
from kev_engine.schema import DEFAULT_ORDER

if TYPE_CHECKING:
    from kev_engine import Answer, SamplingParams


def answer(view: RunView, letter: str, language: str, token_texts: TokenTexts | None = None) -> str:
    """The answers of one card so far and the lines of facts under them, as JSON; empty for a card that never ran.

    With `token_texts`, every answer comes token by token too.
    """
    if letter in view.sweeps:
        swept = view.sweeps[letter]
        status, parts = _swept(view, letter), sweep_parts(letter, swept, view, language)
        if status == QUEUED and not view.num_written:
            parts["told"] = _progress(view, question_id(letter, swept.temperatures[0]), language)
        return to_json({"run": swept.run, "earlier": swept.run != view.number, "status": status, "sweep": parts})
    card = view.cards.get(letter)
    if card is None:
        return ""
    parts: dict[str, object] = {"run": card.run, "earlier": card.run != view.number, "status": card.status}
    if card.error is not None:
        parts["mistake"] = sentence(card.error, language)
    if card.error is None or card.num_tokens:
        parts["samples"] = [_sample(card.sample(k), card, language, token_texts) for k in range(card.num_samples)]
        if card.status == QUEUED:
            parts["waiting"] = _progress(view, letter, language)
    return to_json(parts)


def _swept(view: RunView, letter: str) -> str:
    """How far a sweep is: as far as the last of its questions."""
    cards = [view.cards.get(question_id(letter, value), CardView()) for value in view.sweeps[letter].temperatures]
    statuses = [card.status for card in cards]
    return next((status for status in (ERROR, QUEUED, STREAMING) if status in statuses), statuses[-1])


def _sample(
    sample: SampleView, card: CardView, language: str, token_texts: TokenTexts | None,
) -> dict[str, object]:
    parts: dict[str, object] = {"text": sample.text, "is_done": sample.answer is not None or card.is_cut}
    status = card.status if sample.answer is None else sample.answer.finish_reason
    if token_texts is not None and sample.scores:
        parts["pieces"] = token_pieces(sample, token_texts)
    facts = [say(language, f"status.{status}"), say(language, "answer.tokens", count=len(sample.token_ids))]
    if sample.answer is not None:
        facts += _measured(sample.answer, language)
        parts["sampling"] = _sampling(sample.answer, card.is_default_temperature, language)
        if sample.answer.error is not None:
            parts["mistake"] = spoken(sample.answer.error, language)
    return {**parts, "facts": facts}


def _progress(view: RunView, letter: str, language: str) -> str:
    """How much of a waiting question's prompt was read, or is to be read, its shared context included."""
    segment = _segment_of(view, letter)
    if view.plan is None or segment is None:
        return say(language, "status.queued")
    layout = view.plan.layout
    lineage = layout.lineage(segment)
    done, total = (sum(counts[member] for member in lineage) for counts in (view.executed, layout.lengths))
    under_way = view.prefilling
    if under_way is not None:
        read = sum(chunk.num_new for chunk, member in zip(under_way.plan.chunks, under_way.segments, strict=True)
                   if member in lineage)
        if read:
            return say(language, "status.reading", first=done + 1, last=done + read, total=total,
                       layer=under_way.layer, layers=under_way.num_layers)
    return say(language, "status.prefill" if done else "status.unread", done=done, total=total)


def _measured(result: Answer, language: str) -> list[str]:
    facts: list[str] = []
    if result.ttft_ms is not None:
        facts.append(say(language, "answer.ttft", ms=f"{result.ttft_ms:.0f}"))
    if result.tokens_per_second:
        facts.append(say(language, "answer.rate", rate=f"{result.tokens_per_second:.1f}"))
    if result.cached_tokens:
        facts.append(say(language, "answer.cached", count=result.cached_tokens))
    return facts


def _sampling(result: Answer, is_default_temperature: bool, language: str) -> str:
    """The whole tuple that the answer was drawn with; what is switched off is left out, the order never."""
    params = result.sampling
    key = "sampling.default_temperature" if is_default_temperature else "sampling.temperature"
    shown = [say(language, key, value=f"{params.temperature or 0:g}", version=result.temperature_version)]
    shown += [f"{say(language, name)} {getattr(params, name):g}" for name, off in _OFF.items()
              if getattr(params, name) != off]
    if params.temperature:
        shown.append(say(language, "answer.seed", seed=params.seed))
    shown.append(say(language, "sampling.max", count=result.max_new_tokens))
    return " · ".join([*shown, _order(params, language)])


_OFF = {"top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}


def _order(params: SamplingParams, language: str) -> str:
    return " → ".join(say(language, f"step.{name}") for name in (params.order or DEFAULT_ORDER))


def _segment_of(view: RunView, letter: str) -> int | None:
    infos = view.plan.segments if view.plan else ()
    return next((k for k, info in enumerate(infos) if not info.is_shared and info.name == letter), None)
