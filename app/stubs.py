"""Keeps Gradio from writing stub files for editors when it is imported: a third of the time that its import takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_stub_files() -> Iterator[None]:
    """A block in which Gradio's component classes have no source file.

    At import Gradio parses the source of each of its components to write a `.pyi` beside it; a class without a file it
    leaves out. Whatever other threads import meanwhile keeps its sources.
    """
    usual = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError("no stub file is wanted")
        return usual(thing)

    inspect.getfile = getfile
    try:
        yield
    finally:
        inspect.getfile = usual
