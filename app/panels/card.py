"""The card of one question: its fields as quiet pills, and its answer under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr

from app.forms import FIELDS, CardValues
from app.panels.words import Words

_WIDE = ("question", "context", "system")
_PILLS = ("temperature", "max_new_tokens", "seed")
_MORE = ("top_k", "top_p", "min_p", "repetition_penalty")
_OFF = {"top_k": "0", "top_p": "1", "min_p": "0", "repetition_penalty": "1"}


@dataclass(frozen=True)
class Card:
    """The components of one card; `fields` follows forms.FIELDS."""

    box: gr.Column
    fields: tuple[gr.components.Component, ...]
    duplicate: gr.Button
    remove: gr.Button
    answer: gr.HTML


def lay_out(
    letter: str, index: int, values: CardValues, visible: bool, adapters: Sequence[tuple[str, str]],
    default_temperature: str, answer: str, words: Words,
) -> Card:
    """One card of the pool, filled with `values`."""
    with gr.Column(elem_classes=["card", f"q{index % 8}"], elem_id=f"card-{letter}", visible=visible) as box:
        with gr.Row(elem_classes="head"):
            gr.HTML(f'<span class="letter">{letter}</span>', elem_classes="letter-box")
            duplicate = words.button("duplicate", elem_classes=["icon", "duplicate"], elem_id=f"duplicate-{letter}")
            remove = words.button("remove", elem_classes=["icon", "remove"], elem_id=f"remove-{letter}")
        named = {
            name: words.textbox(
                name, hint=f"{name}_hint", value=getattr(values, name), lines=1, max_lines=8, container=False,
                show_label=False, elem_classes=[name], elem_id=f"{name}-{letter}")
            for name in ("question", "context")
        }
        with gr.Row(elem_classes="pills"):
            named["adapter"] = words.dropdown(
                "adapter", adapters, value=values.adapter, elem_classes=["pill", "adapter"],
                elem_id=f"adapter-{letter}")
            for name in _PILLS:
                hint = {"temperature": default_temperature, "max_new_tokens": "64"}.get(name)
                named[name] = words.textbox(
                    name, hint="seed_hint" if name == "seed" else None, placeholder=hint, value=getattr(values, name),
                    max_lines=1, elem_classes=["pill", name], elem_id=f"{name}-{letter}")
            with words.accordion("more", elem_classes="more", elem_id=f"more-{letter}"):
                named["system"] = words.textbox(
                    "system", hint="system_hint", value=values.system, lines=1, max_lines=4,
                    elem_classes=["pill", "wide"], elem_id=f"system-{letter}")
                with gr.Row(elem_classes="pills"):
                    for name in _MORE:
                        named[name] = words.textbox(
                            name, placeholder=_OFF[name], value=getattr(values, name), max_lines=1,
                            elem_classes=["pill", name], elem_id=f"{name}-{letter}")
        shown = gr.HTML(answer, elem_classes="answer", elem_id=f"answer-{letter}")
    return Card(box, tuple(named[name] for name in FIELDS), duplicate, remove, shown)
