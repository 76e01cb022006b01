"""Everything of the run tab that a run changes, by the name of its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.board import CARD_IDS
from app.render.answer import answer
from app.render.explain import explanation
from app.render.kv import kv_gauge
from app.render.mask import TokenTexts, mask_story
from app.render.verdict import summary, verdict
from app.run_view import RunView

if TYPE_CHECKING:
    from kev_engine.runtime.engine import EngineInfo


def screen(
    view: RunView, info: EngineInfo, token_texts: TokenTexts, language: str, shows_tokens: bool = False,
) -> dict[str, str]:
    """Everything of the run tab that a run changes, by the name of its place."""
    texts = token_texts if shows_tokens else None
    shown = {f"answer_{name}": answer(view, name, language, texts) for name in CARD_IDS}
    shown["mask"] = mask_story(view, token_texts)
    shown["kv"] = kv_gauge(view, info)
    shown["verdict"] = verdict(view, language)
    shown["summary"] = summary(view, language)
    shown["explain"] = explanation(view, language)
    return shown
