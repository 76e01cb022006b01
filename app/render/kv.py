"""The memory of the run as the gauge gets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.i18n import say, texts
from app.render.mask import OTHERS_COLOUR, RESERVED_COLOUR, colour
from app.render.text import mib, to_json
from app.run_view import RunView
from kev_engine.runtime.events import FREE, OTHERS, RESERVED

if TYPE_CHECKING:
    from kev_engine.runtime.engine import EngineInfo
    from kev_engine.runtime.events import KVUsage


def kv_gauge(view: RunView, info: EngineInfo, language: str) -> str:
    """What the gauge draws: bytes by question, and the blocks in use (index, colour, tables, generation)."""
    words = {key: text for key, text in texts(language).items() if key.startswith("kv.")}
    budget = f"{mib(info.kv_bytes_budget)} MiB"
    base: dict[str, object] = {"words": words, "scale": info.kv_bytes_budget, "predicted": 0, "scale_text": ""}
    if view.step is None or view.plan is None:
        per_token = f"{info.bytes_per_token / 1024:,.1f} KiB"
        figures = say(language, "kv.empty", budget=budget, per_token=per_token)
        return to_json({**base, "stacks": [], "blocks": [], "total": 0, "figures": figures, "label": figures})
    kv = view.step.kv
    names = [segment.name for segment in view.plan.segments]
    colours = [colour(segment) for segment in view.plan.segments]
    stacks = [[colours[k], names[k], size] for k, size in enumerate(kv.bytes_by_segment) if size]
    if kv.bytes_others:
        stacks.append([OTHERS_COLOUR, words["kv.others"], kv.bytes_others])
    blocks = _blocks(kv, colours, names, language)
    total = len(kv.block_owner) - 1
    figures = say(language, "kv.used", used=mib(kv.bytes_used), budget=budget, peak=mib(kv.bytes_peak),
                  predicted=mib(view.plan.kv_bytes_predicted))
    label = say(language, "kv.label", used=sum(block[1] != RESERVED_COLOUR for block in blocks), total=total)
    predicted = view.plan.kv_bytes_predicted
    need = max(predicted + kv.bytes_others, kv.bytes_used)
    if need * 4 < info.kv_bytes_budget:
        # Against a large budget a small run would be a hair: the bar ends a little above its need, and says so.
        scale = need * 5 // 4
        base |= {"scale": scale, "scale_text": say(language, "kv.scale", size=mib(scale))}
    base |= {"predicted": predicted}
    return to_json({**base, "stacks": stacks, "blocks": blocks, "total": total, "figures": figures, "label": label})


def _blocks(kv: KVUsage, colours: Sequence[int], names: Sequence[str], language: str) -> list[list[object]]:
    """The blocks not free, without the zero block: index from 0, colour, owner, tables it stands in, generation."""
    nobody = {OTHERS: (OTHERS_COLOUR, say(language, "kv.others")),
              RESERVED: (RESERVED_COLOUR, say(language, "kv.reserved"))}
    blocks: list[list[object]] = []
    for index in (kv.block_owner != FREE).nonzero()[0].tolist():
        owner = int(kv.block_owner[index])
        paint, name = nobody[owner] if owner < 0 else (colours[owner], names[owner])
        blocks.append([index - 1, paint, name, int(kv.block_refs[index]), int(kv.block_generation[index])])
    return blocks
