"""The memory tab: the planner's form on the left, what it found on the right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from app.i18n import EN
from app.panels.words import Words
from app.planner import DTYPES, PLAN_FIELDS, PlanForm
from app.render.memory import plan_figures

DEVICES = ("8 GiB", "16 GB", "24 GB", "40 GB", "48 GB", "80 GB", "141 GB", "192 GB")


@dataclass(frozen=True)
class MemoryPanel:
    """The components of the memory tab; `fields` follows planner.PLAN_FIELDS."""

    tab: gr.Tab
    fields: tuple[gr.components.Component, ...]
    examples: Mapping[str, gr.Button]
    plan: gr.Button
    csv: gr.Button
    json: gr.Button
    figures: gr.HTML
    table: gr.HTML
    figure: gr.Plot


def build(words: Words, examples: Mapping[str, PlanForm], first: PlanForm) -> MemoryPanel:
    """The tab, its form filled with `first`; nothing is planned yet."""
    with words.tab("tab.memory", id="memory") as tab, gr.Row(elem_id="memory-tab"):
        with gr.Column(elem_classes="instrument", elem_id="plan-form", scale=1, min_width=280):
            with gr.Row(elem_classes="examples"):
                buttons = {key: words.button(key, elem_classes="preset", elem_id=key.replace(".", "-"))
                           for key in examples}
            named: dict[str, gr.components.Component] = {
                "model": words.textbox("memory.model", "memory.model_hint", value=first.model, max_lines=1,
                                       elem_id="plan-model"),
                "config": words.textbox("memory.config", "memory.config_hint", value=first.config, lines=3,
                                        max_lines=8, elem_id="plan-config"),
            }
            with gr.Row(elem_classes="pair"):
                for name in ("weight_dtype", "kv_dtype"):
                    named[name] = words.dropdown(f"memory.{name}", [(dtype, dtype) for dtype in DTYPES],
                                                 value=getattr(first, name), elem_id=f"plan-{name}")
            with gr.Row(elem_classes="pair"):
                named["device"] = words.dropdown("memory.device", [(size, size) for size in DEVICES],
                                                 value=first.device, elem_id="plan-device")
                named["usable"] = words.textbox("memory.usable", value=first.usable, max_lines=1, elem_id="plan-usable")
            with gr.Row(elem_classes="pair"):
                for name in ("context", "concurrency"):
                    named[name] = words.textbox(f"memory.{name}", value=getattr(first, name), max_lines=1,
                                                elem_id=f"plan-{name}")
            named["parameters"] = words.textbox("memory.parameters", "memory.parameters_hint", value=first.parameters,
                                                max_lines=1, elem_id="plan-parameters")
            with gr.Row(elem_classes="buttons"):
                plan = words.button("memory.plan", variant="primary", elem_id="plan")
                csv = words.button("memory.csv", interactive=False, elem_id="plan-csv")
                json = words.button("memory.json", interactive=False, elem_id="plan-json")
        with gr.Column(elem_id="plan-result", scale=2, min_width=300):
            with gr.Column(elem_classes="instrument"):
                figures = gr.HTML(plan_figures(None, None, EN), elem_id="plan-figures")
            with gr.Column(elem_classes="instrument wide"):
                table = gr.HTML("", elem_id="plan-table")
                figure = gr.Plot(show_label=False, container=False, visible=False, elem_id="plan-figure")
    return MemoryPanel(tab, tuple(named[name] for name in PLAN_FIELDS), buttons, plan, csv, json, figures, table,
                       figure)
