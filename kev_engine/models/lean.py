"""Imports transformers without torch's compiler and tensors of several machines, of which a start uses neither.

transformers marks a few of its functions for the compiler, takes one class from a file beside it, and reads its own
parts for several machines wherever torch was built for them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
MARKS = frozenset({"allow_in_graph", "assume_constant_result", "disable"})


class _Marks(ModuleType):
    """Stands for the compiler while functions are marked for it; for anything else the compiler itself is imported."""

    def __getattr__(self, name: str) -> Any:
        if name in MARKS:
            return _unmarked
        if name.startswith("__"):
            raise AttributeError(name)
        _forget(self)
        return getattr(importlib.import_module(COMPILER), name)


def import_transformers() -> None:
    """Import transformers' modelling parts, in a process that runs models on one machine and never compiles them.

    For this process transformers is told that torch knows one machine only, as some builds of it do. Whoever asks for
    the compiler later gets it. Nothing happens where either was imported before.
    """
    with _places_alone():
        import torch

    if COMPILER in sys.modules or "transformers.modeling_utils" in sys.modules:
        return
    marks = _Marks(COMPILER)
    marks.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
    is_available = torch.distributed.is_available
    sys.modules[COMPILER] = marks
    torch.distributed.is_available = lambda: False
    try:
        importlib.import_module("transformers.modeling_utils")
        importlib.import_module("transformers.masking_utils")
    finally:
        torch.distributed.is_available = is_available
        _forget(marks)


@contextmanager
def _places_alone() -> Iterator[None]:
    """A block in which frames know where they are and not what is written there, for which torch has files read.

    It notes the place where each of some hundred operators is defined.
    """
    usual = inspect.getframeinfo
    inspect.getframeinfo = functools.partial(usual, context=0)
    try:
        yield
    finally:
        inspect.getframeinfo = usual


def _forget(marks: ModuleType) -> None:
    import torch

    if sys.modules.get(COMPILER) is marks:
        del sys.modules[COMPILER]
    if vars(torch).get("_dynamo") is marks:
        del torch._dynamo


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return (lambda later: later) if function is None else function
