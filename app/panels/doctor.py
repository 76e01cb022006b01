"""The doctor tab: what a person has in hand on the left, with the verdict under it; on the right what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app.doctor_presets import EXAMPLES
from app.i18n import EN, say
from app.panels import doctor_map
from app.panels.scripts import script
from app.panels.words import Words

_UPLOADS = [".npy", ".npz", ".safetensors", ".pt", ".json"]


@dataclass(frozen=True)
class DoctorPanel:
    """The components of the tab; `places` are those that the handlers' screen fills, by its names."""

    examples: gr.Dropdown
    batch: gr.Textbox
    files: gr.File
    examine: gr.Button
    clear: gr.Button
    pieces: gr.Textbox
    template: gr.Textbox
    recorded: gr.Textbox
    tokenizer: gr.Textbox
    describe: gr.Button
    map: gr.HTML
    places: Mapping[str, gr.components.Component]


def example_choices(language: str) -> list[tuple[str, str]]:
    return [(say(language, key), key) for key in EXAMPLES]


def build(words: Words, blank: Mapping[str, str]) -> DoctorPanel:
    """The tab; `blank` is its screen before anything was examined."""
    with gr.Row(elem_id="doctor-tab", elem_classes="doctor-scope"):
        with gr.Column(elem_id="doctor-form", scale=0, min_width=300):
            with gr.Column(elem_classes="instrument", elem_id="doctor-input"):
                examples = words.dropdown("doctor.examples", example_choices(EN), value=None, elem_id="doctor-examples",
                                          container=True)
                batch = words.textbox("doctor.batch", hint="doctor.batch_hint", lines=7, max_lines=14,
                                      elem_id="doctor-batch")
                files = words.file("doctor.files", file_count="multiple", file_types=_UPLOADS,
                                   elem_id="doctor-files")
                with gr.Row(elem_id="doctor-actions"):
                    examine = words.button("doctor.examine", variant="primary", elem_id="doctor-examine")
                    clear = words.button("doctor.clear", elem_id="doctor-clear")
                with words.accordion("doctor.text", elem_classes="more", elem_id="doctor-text"):
                    pieces = words.textbox("doctor.pieces", hint="doctor.pieces_hint", lines=3, max_lines=10,
                                           elem_id="doctor-pieces")
                    template = words.textbox("doctor.template", hint="doctor.template_hint", lines=1, max_lines=6,
                                             elem_id="doctor-template")
                    recorded = words.textbox("doctor.recorded", hint="doctor.recorded_hint", max_lines=1,
                                             elem_id="doctor-recorded")
                    tokenizer = words.textbox("doctor.tokenizer", hint="doctor.tokenizer_hint", max_lines=1,
                                              elem_id="doctor-tokenizer")
                    describe = words.button("doctor.describe", elem_id="doctor-describe")
            with gr.Column(elem_classes="instrument", elem_id="doctor-verdict"):
                clicks = script("doctor/findings.js")
                findings = gr.HTML(blank["findings"], js_on_load=clicks, elem_id="doctor-findings",
                                   elem_classes="doctor-findings")
                repair = gr.HTML(blank["repair"], js_on_load=clicks, elem_id="doctor-repair")
        with gr.Column(elem_classes="instrument", elem_id="doctor-mask", min_width=300):
            shown = doctor_map.build(blank, "doctor-map")
    places: dict[str, gr.components.Component] = {"map": shown, "findings": findings, "repair": repair}
    return DoctorPanel(examples, batch, files, examine, clear, pieces, template, recorded, tokenizer, describe, shown,
                       places)

