"""The events of the history tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from app import snippets
from app.handlers.history import HistoryHandlers
from app.handlers.run import RunHandlers
from app.i18n import say
from app.panels.history import COPIED, SAVED, HistoryPanel
from app.panels.run import RunPanel
from app.render.compare import comparison
from app.render.history import error_line, line, run_detail, run_list, when
from app.render.report import csv_table, html_report
from app.run_record import RunRecord
from app.session import Session
from app.wiring import cards
from app.wiring.download import Download, File
from app.wiring.page import QUIET, Page

KINDS = {"json": "application/json", "csv": "text/csv", "html": "text/html"}


def wire(
    page: Page, panel: HistoryPanel, handlers: HistoryHandlers, runs: RunPanel, run_handlers: RunHandlers,
    tabs: gr.Tabs, download: Download,
) -> None:
    """The switch, the list, the opened run, and the way back into the cards."""
    shown = [panel.runs, panel.note, panel.detail, panel.clear, panel.clear_sure, *panel.actions.values()]

    def show(state: Session, language: str | None = None) -> dict[Any, Any]:
        return _shown(panel, handlers, state, language or state.language)

    def act(action: Callable[..., None]) -> Callable[..., dict[Any, Any]]:
        def then_show(state: Session, *values: Any) -> dict[Any, Any]:
            action(state, *values)
            return show(state)

        return then_show

    def look(state: Session) -> dict[Any, Any]:
        is_on = handlers.is_on(state)
        return {panel.keep: is_on, **show(state)}

    def open_one(state: Session, event: gr.EventData) -> dict[Any, Any]:
        number = event._data.get("number")
        if isinstance(number, int):
            handlers.open(state, number)
        return show(state)

    def bring(state: Session, event: gr.EventData) -> dict[Any, Any]:
        handlers.bring(state, str(event._data.get("name")), str(event._data.get("text")))
        return show(state)

    def reopen(state: Session) -> dict[Any, Any]:
        opened = state.history.opened
        if opened is None:
            return gr.skip()
        if state.is_busy:
            return {panel.note: line(say(state.language, "error.running"), is_mistake=True)}
        note = line(say(state.language, "history.reopened", at=when(opened.record.at)))
        filled = cards.filled(runs, run_handlers, state, opened.record.board, note)
        return {**filled, tabs: gr.update(selected="run")}

    quiet = {"concurrency_limit": None, **QUIET}
    panel.tab.select(look, page.session, [panel.keep, *shown], **quiet)
    panel.keep.input(act(handlers.switch), [page.session, panel.keep], shown, **quiet)
    panel.search.change(act(handlers.search), [page.session, panel.search], shown, trigger_mode="always_last", **quiet)
    panel.runs.open(open_one, page.session, shown, **quiet)
    panel.runs.bring(bring, page.session, shown, **quiet)
    panel.actions["compare"].click(act(handlers.compare), page.session, shown, **quiet)
    panel.actions["delete"].click(act(handlers.delete), page.session, shown, **quiet)
    cards.forget_refusal(runs, [panel.actions["open"].click])
    panel.actions["open"].click(reopen, page.session, [*cards.fillable(runs), tabs, panel.note], **quiet)
    panel.clear.click(lambda: (gr.update(visible=False), gr.update(visible=True)), None,
                      [panel.clear, panel.clear_sure], **quiet)
    panel.clear_sure.click(act(handlers.clear), page.session, shown, **quiet)
    for name in SAVED:
        download.on(panel.actions[name], _file_of(name))
    for name in COPIED:
        download.copied(panel.actions[name], _code_of(name), "#history-note")
    page.on_language(show, shown)


def _shown(panel: HistoryPanel, handlers: HistoryHandlers, state: Session, language: str) -> dict[Any, Any]:
    found = handlers.found(state)
    view = state.history
    opened, beside = view.opened, view.beside
    if opened is None:
        detail = line(say(language, "history.choose"))
    elif beside is None:
        detail = run_detail(opened.record, language)
    else:
        detail = comparison(beside.record, opened.record, language)
    return {
        panel.runs: run_list(found, None if opened is None else opened.number, bool(view.search.strip()), language),
        panel.note: _note(handlers, state, language), panel.detail: detail,
        panel.clear: gr.update(visible=True, interactive=found.total > 0), panel.clear_sure: gr.update(visible=False),
        **{button: gr.update(interactive=opened is not None and (name != "delete" or opened.number is not None))
           for name, button in panel.actions.items()},
    }


def _note(handlers: HistoryHandlers, state: Session, language: str) -> str:
    view = state.history
    if view.error is not None:
        return error_line(view.error, language)
    if view.told:
        return line(say(language, view.told, name=view.named))
    if not handlers.is_on(state):
        return line(say(language, "history.off"))
    key = "history.on_public" if handlers.is_public else "history.on_local"
    return line(say(language, key, path=handlers.log.path))


def _file_of(name: str) -> Callable[[Session], File | None]:
    def make(state: Session) -> File | None:
        if state.history.opened is None:
            return None
        record = state.history.opened.record
        content = {"json": RunRecord.to_json, "csv": csv_table,
                   "html": lambda run: html_report(run, state.language)}[name](record)
        stem = "kev-run-" + "".join(sign for sign in record.at[:19] if sign.isdigit())
        return f"{stem}.{name}", KINDS[name], content

    return make


def _code_of(name: str) -> Callable[[Session], str]:
    write = {"python": snippets.python, "curl": snippets.curl}[name]
    return lambda state: "" if state.history.opened is None else write(state.history.opened.record)
