"""The page: Blocks, and ALL event wiring."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from app import render
from app.forms import CARD_IDS, FIELDS, LOCAL, PUBLIC, CardValues
from app.handlers import TEXTS, Change, Handlers
from app.i18n import EN, LANGUAGES, ZH, texts
from app.panels import run as run_panel
from app.panels.run import RunPanel
from app.panels.words import Words
from app.presets import Preset, presets
from app.session import Session
from app.theme import workbench_theme

if TYPE_CHECKING:
    from kev_engine import Engine

_ASSETS = Path(__file__).parents[1] / "assets"
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
_LANGUAGE_NAMES = (("EN", EN), ("中文", ZH))


def build_app(engine: Engine, is_public: bool | None = None) -> gr.Blocks:
    """The workbench over a loaded engine; `is_public` None: yes on a Hugging Face Space. Launch with page_options()."""
    is_public = bool(os.environ.get("SPACE_ID")) if is_public is None else is_public
    handlers = Handlers(engine, PUBLIC if is_public else LOCAL)
    words = Words(_translations())
    adapters = engine.adapters.list()
    choices = [("base", ""), *((f"{a.name} · r{max(a.ranks)} · {a.version[:4]}", a.name) for a in adapters)]
    examples = presets(engine.adapters.names())
    first = next(iter(examples.values()))
    with gr.Blocks(title="Kev Workbench", analytics_enabled=False, fill_width=True) as demo:
        session = gr.State(Session(preset=first.key), delete_callback=Session.leave)
        is_open = gr.State([k < len(first.cards) for k in range(len(CARD_IDS))])
        with gr.Row(elem_id="top"):
            masthead = gr.HTML(handlers.masthead(EN), elem_id="masthead")
            language = gr.Radio(_LANGUAGE_NAMES, value=EN, show_label=False, label=words.translate("language"),
                                container=False, elem_id="language")
            theme = words.button("theme", elem_id="theme", elem_classes="icon")
        panel = run_panel.build(words, examples, first, choices, f"{engine.temperature.current().value:g}",
                                handlers.blank(EN))
        _wire_runs(panel, handlers, session, is_open)
        _wire_cards(panel, handlers, session, is_open, examples)
        _wire_language(demo, panel, handlers, session, words, language, masthead)
        theme.click(None, js="() => kev.toggleTheme()", **_QUIET)
    return demo


def page_options() -> dict[str, Any]:
    """What `launch` needs beside the address: the look, the scripts, the words; nothing that leaves this machine."""
    catalogue = json.dumps({name: texts(name) for name in LANGUAGES}, ensure_ascii=False).replace("<", "\\u003c")
    script = (_ASSETS / "js" / "page.js").read_text("utf-8")
    return {
        "theme": workbench_theme(), "css_paths": _ASSETS / "css" / "page.css", "i18n": _translations(),
        "head": f"<script>window.kevCatalogue = {catalogue};\n{script}</script>",
        "footer_links": [], "ssr_mode": False, "pwa": False, "favicon_path": _ASSETS / "images" / "mark.svg",
    }


def _translations() -> gr.I18n:
    """Gradio looks a browser's language up exactly, so Chinese stands under both names that browsers send."""
    return gr.I18n(**{EN: texts(EN), ZH: texts(ZH), "zh": texts(ZH)})


def _wire_runs(panel: RunPanel, handlers: Handlers, session: gr.State, is_open: gr.State) -> None:
    fields = [field for card in panel.cards.values() for field in card.fields]
    outputs = [*panel.places.values(), panel.run, panel.stop, panel.audit, panel.cell]

    def busy(is_busy: bool, can_stop: bool) -> dict[Any, Any]:
        return {panel.run: gr.update(interactive=not is_busy), panel.audit: gr.update(interactive=not is_busy),
                panel.stop: gr.update(interactive=is_busy and can_stop)}

    def run(state: Session, opened: list[bool], *values: str) -> Iterator[dict[Any, Any]]:
        yield {**busy(True, can_stop=True), panel.cell: ""}
        for change in handlers.run(state, handlers.cards(opened, values)):
            yield _updates(panel, change)
        yield busy(False, can_stop=True)

    def audit(state: Session, opened: list[bool], *values: str) -> Iterator[dict[Any, Any]]:
        yield busy(True, can_stop=False)
        for change in handlers.audit(state, handlers.cards(opened, values)):
            yield _updates(panel, change)
        yield busy(False, can_stop=False)

    def cell(state: Session, event: gr.EventData) -> str:
        row = event._data.get("row")
        return handlers.cell(state, row) if isinstance(row, int) else ""

    every = {"inputs": [session, is_open, *fields], "outputs": outputs, "concurrency_limit": None, **_QUIET}
    panel.run.click(run, **every)
    panel.audit.click(audit, **every)
    panel.stop.click(Session.stop, session, None, queue=False, **_QUIET)
    panel.mask.click(cell, session, panel.cell, queue=False, **_QUIET)


def _wire_cards(
    panel: RunPanel, handlers: Handlers, session: gr.State, is_open: gr.State, examples: Mapping[str, Preset],
) -> None:
    letters = list(panel.cards)
    fields = [field for card in panel.cards.values() for field in card.fields]
    boxes = [card.box for card in panel.cards.values()]

    def fill(letter: str, values: CardValues) -> dict[Any, Any]:
        card = panel.cards[letter]
        return {card.box: gr.update(visible=True),
                **{field: getattr(values, name) for field, name in zip(card.fields, FIELDS, strict=True)}}

    def open_next(state: Session, opened: list[bool], values: CardValues) -> dict[Any, Any]:
        if all(opened):
            return {panel.note: render.sentence_line("error.pool_full", state.language, limit=len(opened))}
        free = opened.index(False)
        now = [flag or k == free for k, flag in enumerate(opened)]
        blank = handlers.blank(state.language)[f"answer.{letters[free]}"]
        return {is_open: now, panel.cards[letters[free]].answer: blank, **fill(letters[free], values)}

    def add(state: Session, opened: list[bool]) -> dict[Any, Any]:
        return open_next(state, opened, CardValues())

    def duplicate(state: Session, opened: list[bool], *values: str) -> dict[Any, Any]:
        return open_next(state, opened, CardValues(*("" if value is None else str(value) for value in values)))

    def remove(letter: str, state: Session, opened: list[bool]) -> dict[Any, Any]:
        if sum(opened) == 1:
            return {panel.note: render.sentence_line("error.last_card", state.language)}
        now = [flag and letters[k] != letter for k, flag in enumerate(opened)]
        return {is_open: now, panel.cards[letter].box: gr.update(visible=False)}

    def choose(key: str, state: Session) -> dict[Any, Any]:
        if state.stream is not None:
            return {panel.note: render.sentence_line("error.running", state.language)}
        state.preset, cards = key, examples[key].cards
        changes: dict[Any, Any] = {
            is_open: [k < len(cards) for k in range(len(letters))], panel.note: render.note(key, state.language),
            panel.cell: "", **_updates(panel, handlers.clear(state)),
        }
        for k, letter in enumerate(letters):
            changes |= fill(letter, cards[k]) if k < len(cards) else {panel.cards[letter].box: gr.update(visible=False)}
        return changes

    answers = [card.answer for card in panel.cards.values()]
    growing = [is_open, panel.note, *boxes, *fields, *answers]
    panel.add.click(add, [session, is_open], growing, **_QUIET)
    for letter, card in panel.cards.items():
        card.duplicate.click(duplicate, [session, is_open, *card.fields], growing, **_QUIET)
        card.remove.click(_given(remove, letter), [session, is_open], [is_open, panel.note, card.box], **_QUIET)
    for key, button in panel.presets.items():
        filled = [is_open, panel.note, panel.cell, *boxes, *fields, *panel.places.values()]
        button.click(_given(choose, key), session, filled, **_QUIET)


def _wire_language(
    demo: gr.Blocks, panel: RunPanel, handlers: Handlers, session: gr.State, words: Words, language: gr.Radio,
    masthead: gr.HTML,
) -> None:
    """Labels change in the browser, from the same catalogue; what a run has shown is rendered again."""

    def speak(state: Session, name: str) -> dict[Any, Any]:
        if name not in LANGUAGES:
            return {}
        return {**_updates(panel, handlers.speak(state, name)), masthead: handlers.masthead(name),
                panel.note: render.note(state.preset, name), panel.cell: ""}

    keys = json.dumps([spoken.keys for spoken in words.spoken])
    places = [*panel.places.values(), masthead, panel.note, panel.cell]
    labelled = [spoken.component for spoken in words.spoken]
    demo.load(None, None, [language, *labelled], js=f"() => kev.greet({keys})", **_QUIET)
    language.change(None, language, labelled, js=f"(name) => kev.speak(name, {keys})", **_QUIET)
    language.change(speak, [session, language], places, queue=False, **_QUIET)


def _updates(panel: RunPanel, change: Change) -> dict[Any, Any]:
    """A change of the screen as component updates; the prompt's texts ride beside the mask's value."""
    updates: dict[Any, Any] = {panel.places[name]: value for name, value in change.items() if name != TEXTS}
    if TEXTS in change:
        updates[panel.mask] = gr.update(value=change["mask"], texts=change[TEXTS])
    return updates


def _given(action: Any, name: str) -> Any:
    """The action on one named card or preset (a closure of its own in each turn of a loop)."""

    def act(*arguments: Any) -> Any:
        return action(name, *arguments)

    return act


