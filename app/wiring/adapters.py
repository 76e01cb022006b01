"""The events of the adapters tab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from app.handlers.adapters import AdapterHandlers, Change
from app.panels.adapters import AdaptersPanel
from app.session import Session
from app.told import Told
from app.wiring.page import QUIET, Page


def wire(page: Page, panel: AdaptersPanel, handlers: AdapterHandlers, tab: gr.Tab) -> None:
    """Every event of the tab."""
    places = list(panel.places.values())

    def shown(change: Change) -> dict[Any, Any]:
        updates: dict[Any, Any] = {panel.places[name]: value for name, value in change.items() if name in panel.places}
        if "picture" in change:
            texts = {"texts": change["texts"]} if "texts" in change else {}
            updates[panel.picture] = gr.update(value=change["picture"], **texts)
        return updates

    tab.select(lambda state: shown(handlers.screen(state)), page.session, places, queue=False, **QUIET)
    page.demo.load(lambda state: shown(handlers.screen(state)), page.session, places, queue=False, **QUIET)
    page.on_language(lambda state, name: shown(handlers.speak(state, name)), places)

    def effects(state: Session) -> Iterator[dict[Any, Any]]:
        yield {panel.effects: gr.update(interactive=False)}
        yield from map(shown, handlers.effects(state))
        yield {panel.effects: gr.update(interactive=True)}

    def compare(state: Session, question: str, count: str) -> Iterator[dict[Any, Any]]:
        if state.comparing is not None:
            return
        yield {panel.compare: gr.update(interactive=False), panel.stop: gr.update(interactive=True)}
        yield from map(shown, handlers.compare(state, question or "", count or ""))
        yield {panel.compare: gr.update(interactive=True), panel.stop: gr.update(interactive=False)}

    panel.effects.click(effects, page.session, [*places, panel.effects], concurrency_limit=None, **QUIET)
    compared = [*places, panel.compare, panel.stop]
    inputs = [page.session, panel.question, panel.max_new_tokens]
    panel.compare.click(compare, inputs, compared, concurrency_limit=None, **QUIET)
    panel.question.submit(compare, inputs, compared, concurrency_limit=None, **QUIET)
    panel.stop.click(handlers.stop, page.session, None, queue=False, **QUIET)
    _wire_form(page, panel, handlers, shown)


def _wire_form(page: Page, panel: AdaptersPanel, handlers: AdapterHandlers, shown: Any) -> None:
    """Add, rename, replace, unload. A row's Replace fills the form with its name; the form's button then exchanges."""
    places = list(panel.places.values())
    form = [panel.name, panel.source, panel.files]
    buttons = [panel.add, panel.replace, panel.cancel]

    def turned(replacing: str) -> dict[Any, Any]:
        return {
            panel.replacing: replacing, panel.name: gr.update(value=replacing, interactive=not replacing),
            panel.add: gr.update(visible=not replacing), panel.replace: gr.update(visible=bool(replacing)),
            panel.cancel: gr.update(visible=bool(replacing)),
        }

    def add(
        state: Session, name: str, source: str, uploads: list[str] | None, replacing: str
    ) -> Iterator[dict[Any, Any]]:
        busy = {button: gr.update(interactive=False) for button in (panel.add, panel.replace)}
        yield busy
        yield from map(shown, handlers.add(state, name or "", source or "", uploads or [], replacing))
        ready = {button: gr.update(interactive=True) for button in (panel.add, panel.replace)}
        if state.adapters.has_failed:
            yield ready
        else:
            cleared = turned("")
            cleared[panel.add] = gr.update(visible=True, interactive=True)
            cleared[panel.replace] = gr.update(visible=False, interactive=True)
            yield {**cleared, panel.source: "", panel.files: None}

    def rename(state: Session, event: gr.EventData) -> dict[Any, Any]:
        return shown(handlers.rename(state, _text(event, "name"), _text(event, "to")))

    def unload(state: Session, event: gr.EventData) -> dict[Any, Any]:
        return shown(handlers.unload(state, _text(event, "name")))

    def replace(state: Session, event: gr.EventData) -> dict[Any, Any]:
        name = _text(event, "name")
        return {**shown(handlers.tell(state, Told("adapters.replacing", {"name": name}), is_form=True)), **turned(name)}

    def cancel(state: Session) -> dict[Any, Any]:
        return {**shown(handlers.tell(state)), **turned("")}

    inputs = [page.session, *form, panel.replacing]
    changed = [*places, *form, *buttons, panel.replacing]
    for button in (panel.add, panel.replace):
        button.click(add, inputs, changed, concurrency_limit=None, **QUIET)
    panel.table.rename(rename, page.session, places, queue=False, **QUIET)
    panel.table.drop(unload, page.session, places, queue=False, **QUIET)
    panel.table.replace(replace, page.session, changed, queue=False, **QUIET)
    panel.cancel.click(cancel, page.session, changed, queue=False, **QUIET)


def _text(event: gr.EventData, key: str) -> str:
    found = event._data.get(key)
    return found if isinstance(found, str) else ""
