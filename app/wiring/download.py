"""Download: hands a text that a handler made to the browser, as a file or for the clipboard.

Nothing is written on the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr

from app.session import Session
from app.wiring.page import QUIET, Page

File = tuple[str, str, str]
"""Name, media type, content."""


@dataclass(frozen=True)
class Download:
    """The page's outbox, through which a file reaches the browser's script."""

    page: Page
    outbox: gr.Textbox

    def on(self, button: gr.Button, make: Callable[[Session], File | None]) -> None:
        """A click on `button` saves what `make(session)` returns; None saves nothing."""

        def pack(state: Session) -> str:
            file = make(state)
            return "" if file is None else json.dumps(file)

        button.click(pack, self.page.session, self.outbox, **QUIET).then(
            None, self.outbox, None, js="(file) => kev.save(file)", **QUIET)

    def copied(self, button: gr.Button, make: Callable[[Session], str], told: str) -> None:
        """A click on `button` copies what `make(session)` returns; the place `told` (a selector) says whether."""
        button.click(make, self.page.session, self.outbox, **QUIET).then(
            None, self.outbox, None, js=f"(text) => kev.copy(text, {json.dumps(told)})", **QUIET)


def outbox(page: Page) -> Download:
    """The page's one outbox. Called inside the Blocks."""
    return Download(page, gr.Textbox(visible="hidden", elem_id="outbox"))
