"""Page: what every tab's wiring needs of the page around it, and the events of the page itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.handlers.run import TEXTS, Change, RunHandlers
from app.i18n import LANGUAGES
from app.panels.run import RunPanel
from app.panels.words import Words
from app.session import Session

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""No event of the page is an endpoint of its API, and none covers the page with a progress bar."""


@dataclass(frozen=True)
class Page:
    """The Blocks, the tab's Session in its gr.State, the words spoken so far, and the language switch."""

    demo: gr.Blocks
    session: gr.State
    words: Words
    language: gr.Radio

    def on_language(self, speak: Callable[[Session, str], dict[Any, Any]], outputs: Sequence[Any]) -> None:
        """Call `speak(session, language)` when the language changes; it returns updates of `outputs`."""

        def act(state: Session, name: str) -> dict[Any, Any]:
            return speak(state, name) if name in LANGUAGES else gr.skip()

        self.language.change(act, [self.session, self.language], list(outputs), queue=False, **QUIET)


def wire(
    page: Page, masthead: gr.HTML, theme: gr.Button, help_button: gr.Button, masthead_in: Callable[[str], str],
) -> None:
    """Language, theme, and the list of keys. Called after all panels are laid out: labels change in the browser, from
    the catalogue."""
    keys = json.dumps([spoken.keys for spoken in page.words.spoken])
    labelled = [spoken.component for spoken in page.words.spoken]
    greeted = page.demo.load(None, None, [page.language, *labelled], js=f"() => kev.greet({keys})", **QUIET)
    greeted.then(masthead_in, page.language, masthead, queue=False, **QUIET)
    page.language.change(None, page.language, labelled, js=f"(name) => kev.speak(name, {keys})", **QUIET)
    page.on_language(lambda _, name: {masthead: masthead_in(name)}, [masthead])
    theme.click(None, js="() => kev.toggleTheme()", **QUIET)
    help_button.click(None, js="() => kev.showKeys()", **QUIET)


def wire_temperature(
    page: Page, field: gr.Textbox, masthead: gr.HTML, panel: RunPanel, handlers: RunHandlers
) -> None:
    """What is typed becomes the default temperature; masthead and cards show it, or the masthead says why it cannot."""

    def act(state: Session, text: str) -> dict[Any, Any]:
        mistake = handlers.set_temperature(text)
        changed: dict[Any, Any] = {masthead: handlers.masthead(state.language, mistake)}
        return changed if mistake else changed | {field: "", panel.board: gr.update(**handlers.facts())}

    field.submit(act, [page.session, field], [field, masthead, panel.board], queue=False, **QUIET)


def updates(panel: RunPanel, change: Change) -> dict[Any, Any]:
    """A change of the screen as component updates: answers are properties of the board, texts one of the mask."""
    updates: dict[Any, Any] = {panel.places[name]: value for name, value in change.items() if name in panel.places}
    if TEXTS in change:
        updates[panel.mask] = gr.update(value=change["mask"], texts=change[TEXTS])
    answers = {name: value for name, value in change.items() if name.startswith("answer_")}
    if answers:
        updates[panel.board] = gr.update(**answers)
    return updates


def given(action: Any, name: str) -> Any:
    """The action on one named card or preset (a closure of its own in each turn of a loop)."""

    def act(*arguments: Any) -> Any:
        return action(name, *arguments)

    return act
