"""The events of the cards and the presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app import render
from app.forms import FIELDS, CardValues
from app.handlers.run import RunHandlers
from app.panels.run import RunPanel
from app.presets import Preset
from app.session import Session
from app.wiring.page import QUIET, Page, given, updates


def wire(
    page: Page, panel: RunPanel, handlers: RunHandlers, is_open: gr.State, examples: Mapping[str, Preset],
) -> None:
    """Add, duplicate and remove a card; fill the cards with a preset."""
    letters = list(panel.cards)
    fields = [field for card in panel.cards.values() for field in card.fields]
    boxes = [card.box for card in panel.cards.values()]

    def fill(letter: str, values: CardValues) -> dict[Any, Any]:
        card = panel.cards[letter]
        return {card.box: gr.update(visible=True),
                **{field: getattr(values, name) for field, name in zip(card.fields, FIELDS, strict=True)}}

    def open_next(state: Session, opened: list[bool], values: CardValues) -> dict[Any, Any]:
        if all(opened):
            return {panel.note: render.sentence_line("error.pool_full", state.language, limit=len(opened))}
        free = opened.index(False)
        now = [flag or k == free for k, flag in enumerate(opened)]
        blank = handlers.blank(state.language)[f"answer.{letters[free]}"]
        return {is_open: now, panel.cards[letters[free]].answer: blank, **fill(letters[free], values)}

    def add(state: Session, opened: list[bool]) -> dict[Any, Any]:
        return open_next(state, opened, CardValues())

    def duplicate(state: Session, opened: list[bool], *values: str) -> dict[Any, Any]:
        return open_next(state, opened, CardValues(*("" if value is None else str(value) for value in values)))

    def remove(letter: str, state: Session, opened: list[bool]) -> dict[Any, Any]:
        if sum(opened) == 1:
            return {panel.note: render.sentence_line("error.last_card", state.language)}
        now = [flag and letters[k] != letter for k, flag in enumerate(opened)]
        return {is_open: now, panel.cards[letter].box: gr.update(visible=False)}

    def choose(key: str, state: Session) -> dict[Any, Any]:
        if state.stream is not None:
            return {panel.note: render.sentence_line("error.running", state.language)}
        state.preset, cards = key, examples[key].cards
        changes: dict[Any, Any] = {
            is_open: [k < len(cards) for k in range(len(letters))], panel.note: render.note(key, state.language),
            panel.cell: "", **updates(panel, handlers.clear(state)),
        }
        for k, letter in enumerate(letters):
            changes |= fill(letter, cards[k]) if k < len(cards) else {panel.cards[letter].box: gr.update(visible=False)}
        return changes

    answers = [card.answer for card in panel.cards.values()]
    growing = [is_open, panel.note, *boxes, *fields, *answers]
    panel.add.click(add, [page.session, is_open], growing, **QUIET)
    for letter, card in panel.cards.items():
        card.duplicate.click(duplicate, [page.session, is_open, *card.fields], growing, **QUIET)
        card.remove.click(given(remove, letter), [page.session, is_open], [is_open, panel.note, card.box], **QUIET)
    for key, button in panel.presets.items():
        filled = [is_open, panel.note, panel.cell, *boxes, *fields, *panel.places.values()]
        button.click(given(choose, key), page.session, filled, **QUIET)
