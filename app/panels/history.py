"""The history tab: the kept runs on the left, the opened one on the right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app.i18n import EN, say
from app.panels.scripts import script
from app.panels.words import Words
from app.render.history import line

SAVED = ("json", "csv", "html")
COPIED = ("python", "curl")


@dataclass(frozen=True)
class HistoryPanel:
    """The components of the history tab; `actions` are the buttons on the opened run, by name."""

    tab: gr.Tab
    keep: gr.Checkbox
    search: gr.Textbox
    runs: gr.HTML
    clear: gr.Button
    clear_sure: gr.Button
    actions: Mapping[str, gr.Button]
    note: gr.HTML
    detail: gr.HTML


def build(words: Words) -> HistoryPanel:
    """The tab; what is kept is read when it is looked at."""
    with words.tab("tab.history", id="history") as tab, gr.Row(elem_id="history-tab"):
        with gr.Column(elem_classes="instrument", elem_id="history-list", scale=1, min_width=280):
            keep = words.checkbox("history.keep", value=False, elem_id="history-keep", container=False)
            search = words.textbox("history.search", "history.search_hint", max_lines=1, elem_id="history-search")
            runs = gr.HTML("", js_on_load=script("history.js"), elem_id="history-runs")
            with gr.Row(elem_classes="buttons"):
                clear = words.button("history.clear", elem_id="history-clear")
                clear_sure = words.button("history.clear_sure", variant="stop", visible=False,
                                          elem_id="history-clear-sure")
        with gr.Column(elem_id="history-opened", scale=2, min_width=300):
            with gr.Row(elem_classes="buttons"):
                actions = {
                    name: words.button(f"history.{name}", interactive=False, elem_id=f"history-{name}",
                                       variant="primary" if name == "open" else "secondary")
                    for name in ("open", "compare", *SAVED, *COPIED, "delete")
                }
            note = gr.HTML("", elem_id="history-note")
            with gr.Column(elem_classes="instrument"):
                detail = gr.HTML(line(say(EN, "history.choose")), elem_id="history-detail")
    return HistoryPanel(tab, keep, search, runs, clear, clear_sure, actions, note, detail)
