"""The run tab: questions on the left, the instruments that watch them on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from app import render
from app.forms import CARD_IDS, CardValues
from app.i18n import EN
from app.panels.card import Card, lay_out
from app.panels.words import Words
from app.presets import Preset

_JS = Path(__file__).parents[2] / "assets" / "js"


@dataclass(frozen=True)
class RunPanel:
    """The components of the run tab; `places` are those that render.screen fills, by its names."""

    cards: Mapping[str, Card]
    add: gr.Button
    presets: Mapping[str, gr.Button]
    note: gr.HTML
    run: gr.Button
    stop: gr.Button
    audit: gr.Button
    mask: gr.HTML
    cell: gr.HTML
    places: Mapping[str, gr.components.Component]


def build(
    words: Words, presets: Mapping[str, Preset], first: Preset, adapters: Sequence[tuple[str, str]],
    default_temperature: str, blank: Mapping[str, str],
) -> RunPanel:
    """The tab, its cards filled with the preset `first`; `blank` is what render.screen shows before a run."""
    with gr.Row(elem_id="run-tab"):
        with gr.Column(elem_id="cards", scale=1, min_width=300):
            with gr.Row(elem_id="presets"):
                buttons = {
                    key: words.button(key, elem_classes="preset", elem_id=key.replace(".", "-")) for key in presets
                }
            note = gr.HTML(render.note(first.key, EN), elem_id="note")
            cards: dict[str, Card] = {}
            for index, letter in enumerate(CARD_IDS):
                is_used = index < len(first.cards)
                values = first.cards[index] if is_used else CardValues()
                cards[letter] = lay_out(letter, index, values, is_used, adapters, default_temperature,
                                        blank[f"answer.{letter}"], words)
            add = words.button("add", elem_id="add")
        with gr.Column(elem_id="instruments", scale=0, min_width=300):
            with gr.Row(elem_id="actions"):
                run = words.button("run", variant="primary", elem_id="run")
                stop = words.button("stop", elem_id="stop", interactive=False)
                audit = words.button("audit", elem_id="audit")
            with gr.Column(elem_classes="instrument", elem_id="mask-panel"):
                mask = gr.HTML(
                    blank["mask"], texts="[]", html_template=_template("mask"), js_on_load=_script("mask"),
                    elem_id="mask")
                cell = gr.HTML("", elem_id="cell")
            with gr.Column(elem_classes="instrument", elem_id="kv-panel"):
                kv = gr.HTML(blank["kv"], html_template=_template("kv"), js_on_load=_script("kv"), elem_id="kv")
            with gr.Column(elem_classes="instrument", elem_id="verdict-panel"):
                verdict = gr.HTML(blank["verdict"], elem_id="verdict")
                summary = gr.HTML(blank["summary"], elem_id="summary")
    places: dict[str, gr.components.Component] = {f"answer.{letter}": card.answer for letter, card in cards.items()}
    places |= {"mask": mask, "kv": kv, "verdict": verdict, "summary": summary}
    return RunPanel(cards, add, buttons, note, run, stop, audit, mask, cell, places)


def _template(name: str) -> str:
    return (_JS / f"{name}.html").read_text("utf-8")


def _script(name: str) -> str:
    return (_JS / f"{name}.js").read_text("utf-8")
