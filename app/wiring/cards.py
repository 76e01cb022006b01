"""The events of the cards and the presets: what of them needs the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr

from app import board, render
from app.handlers.run import RunHandlers
from app.panels.run import RunPanel
from app.presets import Preset, presets
from app.session import Session
from app.wiring.page import QUIET, Page, given, updates


def wire(
    page: Page, panel: RunPanel, handlers: RunHandlers, examples: Mapping[str, Preset], tab: gr.Tab,
) -> None:
    """Fill the cards with a preset or a file; tell them which adapters there are whenever the tab is looked at."""

    def facts() -> dict[str, Any]:
        return gr.update(**handlers.facts())

    fill = partial(filled, panel, handlers)

    def choose(key: str, state: Session) -> dict[Any, Any]:
        if state.is_busy:
            return {panel.refusal: render.sentence_line("error.running", state.language)}
        state.preset = key
        return fill(state, presets(handlers.engine.adapters.names())[key].board, render.note(key, state.language))

    def load(state: Session, event: gr.EventData) -> dict[Any, Any]:
        if state.is_busy:
            return {panel.refusal: render.sentence_line("error.running", state.language)}
        found = handlers.question_file(event._data.get("name"), event._data.get("text"))
        note = render.imported(found, state.language)
        return fill(state, found.board, note) if found.board.cards else {panel.note: note}

    page.demo.load(facts, None, panel.board, queue=False, **QUIET)
    tab.select(facts, None, panel.board, queue=False, **QUIET)
    forget_refusal(panel, [getattr(panel.board, "import"), *(button.click for button in panel.presets.values())])
    outputs = [*fillable(panel), panel.refusal]
    for key, button in panel.presets.items():
        button.click(given(choose, key), page.session, outputs, **QUIET)
    getattr(panel.board, "import")(load, page.session, outputs, **QUIET)


def forget_refusal(panel: RunPanel, presses: Sequence[Any]) -> None:
    """Drop the refusal when something else is pressed, in the browser: what was pressed before the refusal may be
    answered after it, and must not take it away. Wired before what the press does: the browser acts in this order."""
    for press in presses:
        press(None, None, panel.refusal, js="() => ''", **QUIET)


def fillable(panel: RunPanel) -> list[Any]:
    """The components that `filled` changes."""
    return [panel.note, panel.cell, panel.board, *panel.places.values()]


def filled(
    panel: RunPanel, handlers: RunHandlers, state: Session, cards: board.Board, note: str
) -> dict[Any, Any]:
    """The tab with these cards and no run."""
    changes = updates(panel, handlers.clear(state))
    state.filling += 1
    changes[panel.board]["value"] = board.to_json(cards, state.filling)
    return {**changes, panel.note: note, panel.cell: ""}
