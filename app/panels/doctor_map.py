"""The examined mask with its token strip, as the doctor tab and the fault lab both show it."""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr

from app.panels.scripts import script, template


def build(blank: Mapping[str, str], elem_id: str) -> gr.HTML:
    """The component; `map` and `strip` of `blank` are what it shows first. It answers to findings of its own scope."""
    files = ("story", "painters", "strip", "main")
    return gr.HTML(
        blank["map"], strip=blank["strip"], near="", html_template=template("doctor/doctor.html"),
        js_on_load=script(*(f"doctor/{name}.js" for name in files)), elem_id=elem_id, elem_classes="doctor-map")
