"""The events of the run tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from app import board, render
from app.handlers.run import Change, RunHandlers
from app.i18n import say
from app.panels.run import RunPanel
from app.presets import Preset
from app.session import Session
from app.wiring import cards
from app.wiring.page import QUIET, Page, updates


def wire(
    page: Page, panel: RunPanel, handlers: RunHandlers, examples: Mapping[str, Preset], tab: gr.Tab,
) -> None:
    """Every event of the tab."""
    _wire_runs(page, panel, handlers)
    cards.wire(page, panel, handlers, examples, tab)
    _wire_language(page, panel, handlers)


def _wire_runs(page: Page, panel: RunPanel, handlers: RunHandlers) -> None:
    outputs = [*panel.places.values(), panel.board, panel.run, panel.stop, panel.audit, panel.cell, panel.refusal]

    def busy(is_busy: bool) -> dict[Any, Any]:
        return {panel.run: gr.update(interactive=not is_busy), panel.audit: gr.update(interactive=not is_busy),
                panel.stop: gr.update(interactive=is_busy)}

    def ended(state: Session) -> dict[Any, Any]:
        # Whoever stopped the run has read on the button that it is stopping.
        return {**busy(False), panel.stop: gr.update(interactive=False, value=say(state.language, "stop"))}

    def start(
        state: Session, text: str, changes: Iterator[Change], *emptied: gr.HTML
    ) -> Iterator[dict[Any, Any]]:
        refusal = "error.running" if state.is_busy else _outdated(state, text)
        if refusal:
            yield {panel.refusal: render.sentence_line(refusal, state.language)}
            return
        state.is_busy = True
        try:
            yield {**busy(True), **dict.fromkeys(emptied, "")}
            yield from (updates(panel, change) for change in changes)
        finally:
            state.is_busy = False
        yield ended(state)

    def run(state: Session, text: str) -> Iterator[dict[Any, Any]]:
        yield from start(state, text, handlers.run(state, board.from_json(text)), panel.cell)

    def alone(state: Session, text: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from start(state, text, handlers.run(state, board.from_json(text).only(_letter(event))), panel.cell)

    def again(state: Session, text: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        once_more = handlers.again(state, board.from_json(text), _letter(event))
        yield from start(state, text, handlers.run(state, once_more), panel.cell)

    def sweep(state: Session, text: str, event: gr.EventData) -> Iterator[dict[Any, Any]]:
        yield from start(state, text, handlers.sweep(state, board.from_json(text), _letter(event)), panel.cell)

    def look(state: Session, text: str) -> dict[Any, Any]:
        return updates(panel, handlers.look(state, board.from_json(text).shows_tokens))

    def audit(state: Session, text: str) -> Iterator[dict[Any, Any]]:
        yield from start(state, text, handlers.audit(state, board.from_json(text)))

    def cell(state: Session, event: gr.EventData) -> str:
        row = event._data.get("row")
        return handlers.cell(state, row) if isinstance(row, int) else ""

    every = {"inputs": [page.session, panel.board], "outputs": outputs, "concurrency_limit": None, **QUIET}
    cards.forget_refusal(panel, [panel.run.click, panel.audit.click, panel.board.alone, panel.board.again,
                                 panel.board.sweep])
    panel.run.click(run, **every)
    panel.board.alone(alone, **every)
    panel.board.again(again, **every)
    panel.board.sweep(sweep, **every)
    panel.board.look(look, [page.session, panel.board], [panel.board, *panel.places.values()], **QUIET)
    panel.audit.click(audit, **every)
    stopping = "() => ({ __type__: 'update', interactive: false, value: kev.say('stopping') })"
    panel.stop.click(None, None, panel.stop, js=stopping, **QUIET)
    panel.stop.click(Session.stop, page.session, None, queue=False, **QUIET)
    panel.mask.click(cell, page.session, panel.cell, queue=False, **QUIET)


def _outdated(state: Session, text: str) -> str:
    """The refusal of cards that others took the place of while they were on their way here; empty where none did."""
    return "error.cards_replaced" if board.filling(text) < state.filling else ""


def _letter(event: gr.EventData) -> str:
    found = event._data.get("id")
    return found if isinstance(found, str) else ""


def _wire_language(page: Page, panel: RunPanel, handlers: RunHandlers) -> None:
    """What a run has shown is rendered again; a run that goes on continues in the new language."""

    def speak(state: Session, name: str) -> dict[Any, Any]:
        return {**updates(panel, handlers.speak(state, name)), panel.note: render.note(state.preset, name),
                panel.cell: "", panel.refusal: ""}

    page.on_language(speak, [*panel.places.values(), panel.board, panel.note, panel.cell, panel.refusal])
