"""The run tab: questions on the left, the instruments that watch them on the right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app import board, render
from app.board import CARD_IDS
from app.i18n import EN
from app.panels.scripts import script, template
from app.panels.words import Words
from app.presets import Preset

_BOARD = ("field", "tokens", "sweep", "compare", "answer", "card", "main")


@dataclass(frozen=True)
class RunPanel:
    """The components of the run tab; `places` are those that render.screen fills, by its names.

    `refusal` says why what was pressed last was not done. `board` holds the cards: its value is their JSON
    (app/board.py), its `answer_…` what stands under each question.
    """

    presets: Mapping[str, gr.Button]
    note: gr.HTML
    refusal: gr.HTML
    board: gr.HTML
    run: gr.Button
    stop: gr.Button
    audit: gr.Button
    mask: gr.HTML
    cell: gr.HTML
    places: Mapping[str, gr.components.Component]


def build(
    words: Words, presets: Mapping[str, Preset], first: Preset, facts: Mapping[str, str], blank: Mapping[str, str],
) -> RunPanel:
    """The tab, its cards filled with the preset `first`; `facts` are what the cards know of the engine, `blank` is
    what render.screen shows before a run."""
    with gr.Row(elem_id="run-tab"):
        with gr.Column(elem_id="cards", scale=1, min_width=300):
            gr.HTML("", html_template='<div class="tour"></div>', js_on_load=script("tour.js"), elem_id="tour")
            with gr.Row(elem_id="presets"):
                buttons = {
                    key: words.button(key, elem_classes="preset", elem_id=key.replace(".", "-")) for key in presets
                }
            note = gr.HTML(render.note(first.key, EN), elem_id="note")
            refusal = gr.HTML("", elem_id="refusal")
            cards = gr.HTML(
                board.to_json(first.board), letters=json.dumps(CARD_IDS), **facts,
                **{f"answer_{letter}": "" for letter in CARD_IDS}, apply_default_css=False,
                html_template=template("board/board.html"),
                js_on_load=script(*(f"board/{name}.js" for name in _BOARD)),
                elem_id="board")
        with gr.Column(elem_id="instruments", scale=0, min_width=300):
            with gr.Row(elem_id="actions"):
                run = words.button("run", variant="primary", elem_id="run")
                stop = words.button("stop", elem_id="stop", interactive=False)
                audit = words.button("audit", elem_id="audit")
            with gr.Column(elem_classes="instrument", elem_id="mask-panel"):
                mask = gr.HTML(
                    blank["mask"], texts="[]", html_template=template("mask/mask.html"),
                    js_on_load=script(*(f"mask/{name}.js" for name in ("story", "shapes", "painters", "main"))),
                    elem_id="mask")
                cell = gr.HTML("", elem_id="cell")
            with gr.Column(elem_classes="instrument", elem_id="kv-panel"):
                kv = gr.HTML(blank["kv"], html_template=template("kv/kv.html"), js_on_load=script("kv/kv.js"),
                             elem_id="kv")
            with gr.Column(elem_classes="instrument", elem_id="verdict-panel"):
                verdict = gr.HTML(blank["verdict"], elem_id="verdict")
                summary = gr.HTML(blank["summary"], elem_id="summary")
                explain = gr.HTML(blank["explain"], elem_id="explain")
    places = {"mask": mask, "kv": kv, "verdict": verdict, "summary": summary, "explain": explain}
    return RunPanel(buttons, note, refusal, cards, run, stop, audit, mask, cell, places)
