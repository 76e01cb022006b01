"""Words: makes components whose labels follow the language, and remembers them for the switch in the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr


@dataclass(frozen=True)
class Spoken:
    """One component and the catalogue keys of those of its properties that are words."""

    component: gr.blocks.Block
    keys: dict[str, str]


@dataclass(frozen=True)
class Words:
    """`translate` is the page's gr.I18n, which picks the browser's language at first paint; `spoken` fills up."""

    translate: gr.I18n
    spoken: list[Spoken] = field(default_factory=list)

    def button(self, key: str, **options: Any) -> gr.Button:
        return self._note(gr.Button(self.translate(key), **options), value=key)

    def textbox(self, key: str, hint: str | None = None, **options: Any) -> gr.Textbox:
        """A text field labelled with `key`; `hint` is the key of its placeholder."""
        options.setdefault("container", True)
        if hint is not None:
            options["placeholder"] = self.translate(hint)
        box = gr.Textbox(label=self.translate(key), **options)
        return self._note(box, label=key, **({"placeholder": hint} if hint else {}))

    def checkbox(self, key: str, **options: Any) -> gr.Checkbox:
        return self._note(gr.Checkbox(label=self.translate(key), **options), label=key)

    def dropdown(self, key: str, choices: Sequence[tuple[str, str]], **options: Any) -> gr.Dropdown:
        """A choice labelled with `key`; a name may be typed too, and the form says when it is not loaded."""
        box = gr.Dropdown(list(choices), label=self.translate(key), allow_custom_value=True, **options)
        return self._note(box, label=key)

    def file(self, key: str, **options: Any) -> gr.File:
        """A place for uploads labelled with `key`."""
        return self._note(gr.File(label=self.translate(key), **options), label=key)

    def tab(self, key: str, **options: Any) -> gr.Tab:
        return self._note(gr.Tab(self.translate(key), **options), label=key)

    def accordion(self, key: str, **options: Any) -> gr.Accordion:
        return self._note(gr.Accordion(self.translate(key), open=False, **options), label=key)

    def _note(self, component: Any, **keys: str) -> Any:
        self.spoken.append(Spoken(component, keys))
        return component
