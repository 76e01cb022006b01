"""The events of the panel under the masthead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from app.handlers.model import ModelHandlers, ModelLoading
from app.handlers.run import RunHandlers
from app.panels.model import ModelPanel
from app.panels.run import RunPanel
from app.render.model import model_told
from app.session import Session
from app.told import Told
from app.wiring.page import QUIET, Page, updates
from kev_engine import KevError


def wire(
    page: Page, panel: ModelPanel, handlers: ModelHandlers, masthead: gr.HTML, masthead_in: Callable[[str], str],
    runs: RunPanel, run_handlers: RunHandlers,
) -> None:
    """Choose a model; the masthead and the cards follow."""
    shown = [panel.told, masthead, runs.board, *runs.places.values()]

    def tell(state: Session, item: Told | KevError) -> dict[Any, Any]:
        state.model_told = item
        return {panel.told: model_told(item, state.language)}

    def follow(state: Session) -> dict[Any, Any]:
        """What the page says of the engine everywhere else."""
        changes = updates(runs, run_handlers.speak(state, state.language))
        changes[runs.board] = gr.update(**{**changes[runs.board], **run_handlers.facts()})
        return {**changes, masthead: masthead_in(state.language)}

    built = handlers.model

    def look(state: Session) -> dict[Any, Any]:
        """A page that is opened after a change begins as it was built, and is told of it."""
        if handlers.model == built:
            return {panel.told: gr.update()}
        changes = follow(state)
        del changes[masthead]  # whose language the browser has yet to tell
        return {**changes, panel.spec: handlers.model}

    def choose(state: Session, spec: str) -> Iterator[dict[Any, Any]]:
        yield {panel.load: gr.update(interactive=False), panel.cancel: gr.update(visible=True)}
        item: Told | KevError | None = None
        for item in handlers.choose(spec or ""):
            yield tell(state, item)
        is_loaded = isinstance(item, Told) and item.key == "model.loaded"
        # Who finds another tab's load under way may cancel that one.
        yield {panel.load: gr.update(interactive=True), panel.cancel: gr.update(visible=isinstance(item, ModelLoading)),
               **(follow(state) if is_loaded else {})}

    def cancel(state: Session) -> dict[Any, Any]:
        told = handlers.cancel()
        return {panel.cancel: gr.update(visible=False), **(tell(state, told) if told else {panel.told: ""})}

    every = {"concurrency_limit": None, **QUIET}
    for event in (panel.load.click, panel.spec.submit):
        event(choose, [page.session, panel.spec], [*shown, panel.load, panel.cancel], **every)
    panel.cancel.click(cancel, page.session, [panel.told, panel.cancel], queue=False, **QUIET)
    page.demo.load(look, page.session, [*shown, panel.spec], queue=False, **QUIET)
    page.on_language(lambda state, name: {panel.told: model_told(state.model_told, name)}, [panel.told])
