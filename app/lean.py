"""Imports Gradio without what this page has no use for: half of the time that its import takes."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import jinja2

DEFERRED = "pandas"
"""Gradio imports it for caches of tables, which this page has not; it is loaded as soon as something of it is used."""


class _Deferring:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == DEFERRED else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def lean_import() -> Iterator[None]:
    """A block in which Gradio's component classes have no source file, nothing is made twice, and pandas waits.

    At import Gradio parses the source of each of its components to write a `.pyi` beside it; a class without a file it
    leaves out. Each of some 200 events has one of 36 templates as its documentation, and each of three clients reads
    the same certificates. Whatever other threads import meanwhile keeps its sources.
    """
    usual, template, certificates = inspect.getfile, jinja2.Template, ssl.create_default_context

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError("no stub file is wanted")
        return usual(thing)

    inspect.getfile = getfile
    jinja2.Template = functools.cache(template)
    ssl.create_default_context = functools.cache(certificates)
    sys.meta_path.insert(0, _Deferring)
    try:
        yield
    finally:
        inspect.getfile, jinja2.Template, ssl.create_default_context = usual, template, certificates
        sys.meta_path.remove(_Deferring)
