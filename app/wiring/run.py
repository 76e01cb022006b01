"""The events of the run tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from app import render
from app.handlers.run import RunHandlers
from app.panels.run import RunPanel
from app.presets import Preset
from app.session import Session
from app.wiring import cards
from app.wiring.page import QUIET, Page, updates


def wire(page: Page, panel: RunPanel, handlers: RunHandlers, is_open: gr.State, examples: Mapping[str, Preset]) -> None:
    """Every event of the tab."""
    _wire_runs(page, panel, handlers, is_open)
    cards.wire(page, panel, handlers, is_open, examples)
    _wire_language(page, panel, handlers)


def _wire_runs(page: Page, panel: RunPanel, handlers: RunHandlers, is_open: gr.State) -> None:
    fields = [field for card in panel.cards.values() for field in card.fields]
    outputs = [*panel.places.values(), panel.run, panel.stop, panel.audit, panel.cell]

    def busy(is_busy: bool, can_stop: bool) -> dict[Any, Any]:
        return {panel.run: gr.update(interactive=not is_busy), panel.audit: gr.update(interactive=not is_busy),
                panel.stop: gr.update(interactive=is_busy and can_stop)}

    def run(state: Session, opened: list[bool], *values: str) -> Iterator[dict[Any, Any]]:
        yield {**busy(True, can_stop=True), panel.cell: ""}
        for change in handlers.run(state, handlers.cards(opened, values)):
            yield updates(panel, change)
        yield busy(False, can_stop=True)

    def audit(state: Session, opened: list[bool], *values: str) -> Iterator[dict[Any, Any]]:
        yield busy(True, can_stop=False)
        for change in handlers.audit(state, handlers.cards(opened, values)):
            yield updates(panel, change)
        yield busy(False, can_stop=False)

    def cell(state: Session, event: gr.EventData) -> str:
        row = event._data.get("row")
        return handlers.cell(state, row) if isinstance(row, int) else ""

    every = {"inputs": [page.session, is_open, *fields], "outputs": outputs, "concurrency_limit": None, **QUIET}
    panel.run.click(run, **every)
    panel.audit.click(audit, **every)
    panel.stop.click(Session.stop, page.session, None, queue=False, **QUIET)
    panel.mask.click(cell, page.session, panel.cell, queue=False, **QUIET)


def _wire_language(page: Page, panel: RunPanel, handlers: RunHandlers) -> None:
    """What a run has shown is rendered again; a run that goes on continues in the new language."""

    def speak(state: Session, name: str) -> dict[Any, Any]:
        return {**updates(panel, handlers.speak(state, name)), panel.note: render.note(state.preset, name),
                panel.cell: ""}

    page.on_language(speak, [*panel.places.values(), panel.note, panel.cell])
