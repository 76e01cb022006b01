"""What app/explain.py needs to know of a run and of the engine that answered it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.explain import Cost, RunFacts, common_tokens
from app.run_view import RunView

if TYPE_CHECKING:
    from kev_engine.runtime.engine import EngineInfo


def cost_of(info: EngineInfo) -> Cost:
    """What a token costs on this engine. Weights are counted with their average size."""
    weights = max(1, info.body_weights + info.head_weights)
    return Cost(info.body_weights, info.head_weights, max(1, round(info.weight_bytes / weights)), info.num_layers,
                info.num_heads, info.head_dim, info.bytes_per_token)


def run_facts(view: RunView, info: EngineInfo) -> RunFacts | None:
    """The facts of a run that is over; None where it never began."""
    if view.plan is None or view.run is None:
        return None
    stats, layout = view.run.stats, view.plan.layout
    answers = [sample.answer for card in view.current.values() for sample in card.samples if sample.answer is not None]
    cached = view.step.cached if view.step is not None and view.step.cached else (0,) * layout.num_segments
    roots = [(segment.token_ids, count, segment.adapter) for segment, parent, count
             in zip(view.plan.segments, layout.parents, cached, strict=True) if parent is None]
    return RunFacts(
        prompt_tokens=layout.num_tokens, cached_tokens=stats.cached_tokens,
        common_tokens=common_tokens(roots, info.block_size), output_tokens=view.num_written,
        kv_peak_share=stats.kv_bytes_peak / stats.kv_bytes_budget, preemptions=stats.preemptions,
        ttft_ms=_mean(answer.ttft_ms for answer in answers), tpot_ms=_mean(answer.tpot_ms for answer in answers),
        queue_ms=_mean(answer.queue_ms for answer in answers),
        draft_proposed=stats.draft_proposed, draft_accepted=stats.draft_accepted, model=info.digest,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
