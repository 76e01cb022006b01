"""The memory of the run as the gauge gets it: bytes and blocks, no words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.render.mask import colour
from app.render.text import to_json
from app.run_view import RunView
from kev_engine.runtime.events import FREE

if TYPE_CHECKING:
    from kev_engine.runtime.engine import EngineInfo
    from kev_engine.runtime.events import KVUsage

MOST_POINTS = 240
"""The line over the run is at most so many points long; a longer run shows the largest value of each stretch."""


def kv_gauge(view: RunView, info: EngineInfo) -> str:
    """What the gauge draws: bytes by segment, the blocks not free, the use over the run, and the device around it.

    A stretch of blocks is `[first, count, segment or OTHERS or RESERVED, tables each stands in, generation]`.
    """
    memory = view.memory
    base = {"budget": info.kv_bytes_budget, "per_token": info.bytes_per_token,
            "device": None if memory is None else [memory.weights, memory.adapters, memory.free]}
    if view.step is None or view.plan is None:
        return to_json({**base, "segments": [], "blocks": [], "total": 0, "scale": info.kv_bytes_budget})
    kv, predicted = view.step.kv, view.plan.kv_bytes_predicted
    need = max(predicted + kv.bytes_others, kv.bytes_used)
    cached = [count for count, parent in zip(view.step.cached, view.plan.layout.parents, strict=False)
              if parent is None]
    return to_json({
        **base,
        "segments": [[colour(info), info.name, size]
                     for info, size in zip(view.plan.segments, kv.bytes_by_segment, strict=True)],
        "others": kv.bytes_others, "used": kv.bytes_used, "peak": kv.bytes_peak, "predicted": predicted,
        "kept": kv.bytes_kept, "cached": sum(cached), "hits": sum(count > 0 for count in cached),
        "blocks": _stretches(kv), "total": len(kv.block_owner) - 1, "line": _line(view.kv_used),
        # Against a large budget a small run would be a hair: the bar ends a little above its need, and says so.
        "scale": need * 5 // 4 if need * 4 < info.kv_bytes_budget else info.kv_bytes_budget,
    })


def _stretches(kv: KVUsage) -> list[list[int]]:
    """The blocks not free, without the zero block, counted from 0; neighbours that are alike as one stretch."""
    found: list[list[int]] = []
    for index in (kv.block_owner != FREE).nonzero()[0].tolist():
        alike = [int(kv.block_owner[index]), int(kv.block_refs[index]), int(kv.block_generation[index])]
        if found and found[-1][2:] == alike and found[-1][0] + found[-1][1] == index - 1:
            found[-1][1] += 1
        else:
            found.append([index - 1, 1, *alike])
    return found


def _line(values: tuple[int, ...]) -> list[int]:
    size = -(-len(values) // MOST_POINTS)
    return [max(values[at:at + size]) for at in range(0, len(values), size)] if values else []
