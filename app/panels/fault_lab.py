"""The fault lab: a place of its own under the run tab's cards, closed until somebody wants to break something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app import render
from app.i18n import EN, say
from app.panels import doctor_map
from app.panels.scripts import script
from app.panels.words import Words
from kev_engine.isolation.faults import FAULTS


@dataclass(frozen=True)
class FaultLabPanel:
    """The components of the lab; `places` are those that the handlers' screen fills, by its names."""

    fault: gr.Radio
    note: gr.HTML
    start: gr.Button
    map: gr.HTML
    places: Mapping[str, gr.components.Component]


def fault_choices(language: str) -> list[tuple[str, str]]:
    return [(say(language, f"fault.{name}"), name) for name in FAULTS]


def build(words: Words, blank: Mapping[str, str]) -> FaultLabPanel:
    """The lab; `blank` is its screen before anything was broken."""
    first = next(iter(FAULTS))
    with words.accordion("lab.title", elem_id="fault-lab", elem_classes="doctor-scope"):
        with gr.Row(elem_id="lab-choice"):
            fault = gr.Radio(fault_choices(EN), value=first, show_label=False, container=False, elem_id="lab-fault")
            start = words.button("lab.start", elem_id="lab-start")
        note = gr.HTML(render.note(f"fault.{first}", EN), elem_id="lab-note")
        with gr.Row(elem_id="lab-result"):
            with gr.Column(min_width=280, elem_classes="instrument"):
                verdict = gr.HTML(blank["verdict"], elem_id="lab-verdict")
                findings = gr.HTML(blank["findings"], js_on_load=script("doctor/findings.js"), elem_id="lab-findings",
                                   elem_classes="doctor-findings")
            with gr.Column(min_width=280, elem_classes="instrument"):
                shown = doctor_map.build(blank, "lab-map")
    return FaultLabPanel(fault, note, start, shown, {"verdict": verdict, "findings": findings, "map": shown})
