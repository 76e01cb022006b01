"""The panel under the masthead: the model that answers."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.panels.words import Words


@dataclass(frozen=True)
class ModelPanel:
    """The components of the panel; `told` says how the last action went."""

    spec: gr.Textbox
    load: gr.Button
    cancel: gr.Button
    told: gr.HTML


def build(words: Words, model: str) -> ModelPanel:
    """The panel, closed until the masthead's chip opens it; `model` is how the loaded model is named."""
    with gr.Column(elem_id="model-panel"):
        with gr.Row(elem_id="model-fields"):
            spec = words.textbox("model.spec", hint="model.spec_hint", value=model, max_lines=1, elem_id="model-spec")
            load = words.button("model.load", elem_id="model-load")
        with gr.Row(elem_id="model-progress"):
            told = gr.HTML("", elem_id="model-told")
            cancel = words.button("model.cancel", visible=False, elem_id="model-cancel")
    return ModelPanel(spec, load, cancel, told)
