"""The events of the memory tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from app.handlers.memory import MemoryHandlers, as_csv, as_json, told
from app.i18n import say
from app.panels.memory import MemoryPanel
from app.planner import PLAN_FIELDS, Plan, PlanForm
from app.render.memory import plan_figure, plan_figures, plan_table
from app.render.text import escape
from app.session import Session
from app.wiring.download import Download
from app.wiring.page import QUIET, Page, given
from kev_engine import KevError


def wire(
    page: Page, panel: MemoryPanel, handlers: MemoryHandlers, examples: Mapping[str, PlanForm], download: Download,
) -> None:
    """Plan, fill with an example, export, and the language."""
    shown = [panel.figures, panel.table, panel.figure, panel.csv, panel.json]

    def show(state: Session, plan: Plan | None, error: KevError | None = None) -> dict[Any, Any]:
        state.plan, state.plan_error = plan, error
        return _shown(panel, state, state.language)

    def compute(state: Session, *values: str) -> Iterator[dict[Any, Any]]:
        yield {panel.figures: f'<p class="hint" role="status">{escape(say(state.language, "memory.working"))}</p>'}
        try:
            plan = handlers.plan(PlanForm(*("" if value is None else str(value) for value in values)))
        except Exception as error:
            yield show(state, None, told(error))
            return
        yield show(state, plan)

    def fill(key: str) -> list[str]:
        return [getattr(examples[key], name) for name in PLAN_FIELDS]

    every = {"concurrency_limit": 2, **QUIET}
    panel.plan.click(compute, [page.session, *panel.fields], shown, **every)
    for key, button in panel.examples.items():
        button.click(given(fill, key), None, list(panel.fields), **QUIET).then(
            compute, [page.session, *panel.fields], shown, **every)
    download.on(panel.csv, lambda state: ("kev-plan.csv", "text/csv", as_csv(state.plan)))
    download.on(panel.json, lambda state: ("kev-plan.json", "application/json", as_json(state.plan)))
    page.on_language(lambda state, name: _shown(panel, state, name), shown)


def _shown(panel: MemoryPanel, state: Session, language: str) -> dict[Any, Any]:
    plan = state.plan
    return {
        panel.figures: plan_figures(plan, state.plan_error, language), panel.table: plan_table(plan, language),
        panel.figure: gr.update(value=plan_figure(plan, language), visible=plan is not None),
        panel.csv: gr.update(interactive=plan is not None), panel.json: gr.update(interactive=plan is not None),
    }
