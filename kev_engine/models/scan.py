"""Lets transformers look through its own sources once on a machine, not twice at every start.

At import it reads some 3,000 of its files to know who defines what, for the whole package and again for its models.
What it found is kept in the cache folder, and holds for this version, in this place, with these folders.
"""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from kev_engine.config import cache_home

MODULE, FUNCTION = "transformers.utils.import_utils", "define_import_structure"
MODELS = "models"
Found = Mapping[frozenset[str], Mapping[str, set[str]]]
"""The names a module defines, by module, by what must be installed for them."""


class _Remembering(importlib.machinery.SourceFileLoader):
    """Loads the module, and lets its function remember what it found in the folder of models."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if callable(find := getattr(module, FUNCTION, None)):
            setattr(module, FUNCTION, _remembered(find))


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


def _remembered(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.cache
    def in_models(folder: Path) -> Found:
        version = str(getattr(sys.modules["transformers"], "__version__", ""))
        file = cache_home(os.environ) / f"transformers-{version}.json"
        state = [version, str(folder), max(entry.stat().st_mtime_ns for entry in folder.iterdir())]
        found: Found | None = None
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            kept = json.loads(file.read_text())
            if kept["state"] == state:
                found = {
                    frozenset(needed): {module: set(names) for module, names in modules.items()}
                    for needed, modules in kept["found"]
                }
        if found is None:
            found = find(folder)
            with suppress(OSError):
                _keep(file, state, found)
        return found

    def define_import_structure(module_path: str | Path, prefix: str | None = None) -> Any:
        path = Path(module_path)
        folder = path.parent if path.is_file() else path
        if folder.name != MODELS:
            return find(module_path, prefix)
        found = in_models(folder)
        if prefix is None:
            return found
        return {
            needed: {f"{prefix}.{module}": names for module, names in modules.items()}
            for needed, modules in found.items()
        }

    return define_import_structure


def _keep(file: Path, state: list[Any], found: Found) -> None:
    plain = [
        [sorted(needed), {module: sorted(names) for module, names in modules.items()}]
        for needed, modules in found.items()
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"state": state, "found": plain}))
    part.replace(file)
