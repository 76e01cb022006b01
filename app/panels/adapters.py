"""The adapters tab: what is loaded and how it answers on the left, adding more on the right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app.handlers.adapters import AdapterHandlers
from app.panels.scripts import script, template
from app.panels.words import Words
from app.session import Session

QUESTION = "What can I do on a rainy afternoon?"


@dataclass(frozen=True)
class AdaptersPanel:
    """The components of the tab; `places` are those that the handlers' screen fills, by its names."""

    table: gr.HTML
    effects: gr.Button
    question: gr.Textbox
    max_new_tokens: gr.Textbox
    compare: gr.Button
    stop: gr.Button
    name: gr.Textbox
    source: gr.Textbox
    files: gr.File
    add: gr.Button
    replace: gr.Button
    cancel: gr.Button
    replacing: gr.State
    picture: gr.HTML
    places: Mapping[str, gr.components.Component]


def build(words: Words, handlers: AdapterHandlers, preset: str) -> AdaptersPanel:
    """The tab as it stands before anything was done in it."""
    blank = handlers.screen(Session(preset))
    is_public = handlers.is_public
    replacing = gr.State("")
    with gr.Row(elem_id="adapters-tab"):
        with gr.Column(elem_id="adapters-main", scale=1, min_width=300):
            with gr.Column(elem_classes="instrument", elem_id="adapters-loaded"):
                table = gr.HTML(blank["table"], js_on_load=script("adapters.js"), elem_id="adapters-table")
                said = gr.HTML(blank["said"], elem_id="adapters-said")
                effects = words.button("adapters.check", elem_id="adapters-check")
            with gr.Column(elem_classes="instrument", elem_id="adapters-compare"):
                with gr.Row(elem_id="compare-line"):
                    question = words.textbox("question", hint="question_hint", value=QUESTION, lines=1, max_lines=6,
                                             show_label=False, container=False, elem_id="compare-question")
                    max_new_tokens = words.textbox("max_new_tokens", value="48", max_lines=1,
                                                   elem_classes=["pill", "max_new_tokens"], elem_id="compare-max")
                    compare = words.button("compare", variant="primary", elem_id="compare")
                    stop = words.button("stop", elem_id="compare-stop", interactive=False)
                answers = gr.HTML(blank["answers"], elem_id="voices")
                summary = gr.HTML(blank["summary"], elem_id="compare-summary")
            with gr.Column(elem_classes="instrument", elem_id="adapters-picture-panel"):
                picture = gr.HTML(
                    blank["picture"], texts=blank["texts"],
                    html_template=template("tokens.html").replace("<!--mask-->", template("mask/mask.html")),
                    js_on_load=script(*(f"mask/{name}.js" for name in ("story", "shapes", "painters", "main")),
                                      "tokens.js"),
                    elem_id="adapters-picture")
        with gr.Column(elem_id="adapters-form", scale=0, min_width=300, elem_classes="instrument"):
            head = gr.HTML(blank["head"], elem_id="adapters-head")
            name = words.textbox("adapters.name", hint="adapters.name_hint", max_lines=1, elem_id="adapters-name",
                                 visible=not is_public)
            source = words.textbox("adapters.source", hint="adapters.source_hint", max_lines=1,
                                   elem_id="adapters-source", visible=not is_public)
            files = words.file("adapters.files", file_count="multiple", elem_id="adapters-files",
                               file_types=[".zip", ".json", ".safetensors", ".bin"], visible=not is_public)
            with gr.Row(elem_id="adapters-actions", visible=not is_public):
                add = words.button("adapters.add", variant="primary", elem_id="adapters-add")
                replace = words.button("adapters.replace", variant="primary", elem_id="adapters-replace", visible=False)
                cancel = words.button("adapters.cancel", elem_id="adapters-cancel", visible=False)
            told = gr.HTML(blank["told"], elem_id="adapters-told")
    places: dict[str, gr.components.Component] = {
        "head": head, "table": table, "told": told, "said": said, "answers": answers, "summary": summary,
        "picture": picture,
    }
    return AdaptersPanel(table, effects, question, max_new_tokens, compare, stop, name, source, files, add, replace,
                         cancel, replacing, picture, places)
