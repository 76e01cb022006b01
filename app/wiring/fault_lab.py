"""The events of the fault lab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app import board, render
from app.handlers.fault_lab import Change, FaultLabHandlers
from app.panels.fault_lab import FaultLabPanel, fault_choices
from app.session import Session
from app.wiring.page import QUIET, Page
from kev_engine.isolation.faults import FAULTS


def wire(page: Page, panel: FaultLabPanel, handlers: FaultLabHandlers, cards: gr.HTML) -> None:
    """Every event of the lab; `cards` is the run tab's board."""
    places = list(panel.places.values())

    def shown(change: Change) -> dict[Any, Any]:
        updates: dict[Any, Any] = {panel.places[name]: change[name] for name in ("verdict", "findings")}
        return updates | {panel.map: gr.update(value=change["map"], strip=change["strip"], near="")}

    def start(state: Session, text: str, fault: str) -> Iterator[dict[Any, Any]]:
        yield {panel.start: gr.update(interactive=False)}
        for change in handlers.break_it(state, board.from_json(text), fault):
            yield shown(change)
        yield {panel.start: gr.update(interactive=True)}

    def choose(state: Session, fault: str) -> str:
        return render.note(f"fault.{fault}", state.language) if fault in FAULTS else ""

    def look(state: Session, event: gr.EventData) -> dict[Any, Any]:
        stretch = event._data.get("stretch")
        if isinstance(stretch, list) and len(stretch) == 4 and all(isinstance(edge, int) for edge in stretch):
            return {panel.map: gr.update(near=handlers.turn(state, stretch))}
        return gr.skip()

    def speak(state: Session, name: str) -> dict[Any, Any]:
        fault = state.lab.fault or next(iter(FAULTS))
        return {panel.fault: gr.update(choices=fault_choices(name)), panel.note: render.note(f"fault.{fault}", name),
                **shown(handlers.speak(state, name))}

    panel.start.click(start, [page.session, cards, panel.fault], [*places, panel.start], concurrency_limit=None,
                      **QUIET)
    panel.fault.change(choose, [page.session, panel.fault], panel.note, queue=False, **QUIET)
    panel.map.select(look, page.session, panel.map, queue=False, trigger_mode="always_last", **QUIET)
    page.on_language(speak, [panel.fault, panel.note, *places])
