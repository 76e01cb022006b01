"""The events of the doctor tab."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.doctor_presets import EXAMPLES
from app.handlers.doctor import Change, DoctorHandlers
from app.panels.doctor import DoctorPanel, example_choices
from app.session import Session
from app.wiring.page import QUIET, Page


def wire(page: Page, panel: DoctorPanel, handlers: DoctorHandlers) -> None:
    """Every event of the tab."""
    places = list(panel.places.values())

    def shown(change: Change) -> dict[Any, Any]:
        updates: dict[Any, Any] = {panel.places[name]: value for name, value in change.items() if name != "strip"}
        updates[panel.map] = gr.update(value=change["map"], strip=change["strip"], near="")
        return updates

    def examine(state: Session, text: str, uploads: list[str] | None) -> dict[Any, Any]:
        return shown(handlers.examine(state, text or "", uploads or []))

    def example(state: Session, key: str | None) -> dict[Any, Any]:
        if key not in EXAMPLES:
            return gr.skip()
        text, change = handlers.example(state, key)
        return {panel.batch: text, panel.files: None, **shown(change)}

    def describe(state: Session, *fields: str | None) -> dict[Any, Any]:
        text, change = handlers.describe(state, *(field or "" for field in fields))
        return shown(change) if text is None else {panel.batch: text, panel.files: None, **shown(change)}

    def clear(state: Session) -> dict[Any, Any]:
        return {panel.batch: "", panel.files: None, panel.examples: None, **shown(handlers.clear(state))}

    def look(state: Session, event: gr.EventData) -> dict[Any, Any]:
        stretch, row = event._data.get("stretch"), event._data.get("row")
        if isinstance(stretch, list) and len(stretch) == 4 and all(isinstance(edge, int) for edge in stretch):
            return {panel.map: gr.update(near=handlers.window(state, stretch))}
        return shown(handlers.turn(state, row)) if isinstance(row, int) else gr.skip()

    # What is chosen while an answer is on its way must not be lost.
    latest: dict[str, Any] = {"trigger_mode": "always_last", **QUIET}
    form = [panel.batch, panel.files, panel.examples]
    panel.examine.click(examine, [page.session, panel.batch, panel.files], places, **latest)
    panel.examples.input(example, [page.session, panel.examples], [*form, *places], **latest)
    panel.describe.click(describe, [page.session, panel.pieces, panel.template, panel.recorded, panel.tokenizer],
                         [*form, *places], **QUIET)
    panel.clear.click(clear, page.session, [*form, *places], **QUIET)
    panel.map.select(look, page.session, places, queue=False, **latest)
    page.on_language(lambda state, name: {panel.examples: gr.update(choices=example_choices(name)),
                                          **shown(handlers.speak(state, name))}, [panel.examples, *places])
