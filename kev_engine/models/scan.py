"""Lets transformers look through its own sources once when it is imported, not twice: half a second of every start.

At import it reads some 3,000 of its files to know who defines what, for the whole package and again for its models.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULE, FUNCTION = "transformers.utils.import_utils", "create_import_structure_from_path"


class _Remembering(importlib.machinery.SourceFileLoader):
    """Loads the module, and lets its function remember what it found in a folder."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if callable(found := getattr(module, FUNCTION, None)):
            setattr(module, FUNCTION, functools.cache(found))


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Remembering(name, spec.loader.path)
        return spec


def scan_once() -> None:
    """Must be called before transformers is imported; later, or with another transformers, nothing is changed."""
    if MODULE not in sys.modules and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
