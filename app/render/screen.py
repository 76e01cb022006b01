"""Everything of the run tab that a run changes, by the name of its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.board import CARD_IDS
from app.render.answer import answer
from app.render.kv import kv_gauge
from app.render.mask import TokenTexts, mask_story
from app.render.verdict import summary, verdict
from app.run_view import RunView

if TYPE_CHECKING:
    from kev_engine.runtime.engine import EngineInfo


def screen(view: RunView, info: EngineInfo, token_texts: TokenTexts, language: str) -> dict[str, str]:
    """Everything of the run tab that a run changes, by the name of its place."""
    shown = {f"answer_{name}": answer(view.cards.get(name), view, name, language) for name in CARD_IDS}
    shown["mask"] = mask_story(view, token_texts)
    shown["kv"] = kv_gauge(view, info)
    shown["verdict"] = verdict(view, language)
    shown["summary"] = summary(view, language)
    return shown
