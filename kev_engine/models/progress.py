"""How a model that takes minutes to arrive tells how far it is, and what the libraries below had to say meanwhile."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

Progress = Callable[[str, int, int], None]
"""`progress(stage, done, total)`: bytes or items of a stage; total 0 where it is not known.

It may raise LoadCancelled, which ends the load: files that have arrived are kept, half-made ones removed or resumed.
"""


def silent(stage: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


@contextmanager
def transformers_heard(stage: str, progress: Progress) -> Iterator[list[str]]:
    """The sentences that transformers warns with inside the block, in order and each once.

    Its progress bars become calls of `progress`, and nothing is printed: what matters is returned to the caller, who
    makes an error of it or passes it on. Logging and bars are process-wide in transformers, so they are put back.
    """
    from transformers.utils import logging as library

    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sentence = " ".join(record.getMessage().split())
            if record.levelno >= logging.WARNING and sentence not in heard:
                heard.append(sentence)

    def bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return progress_bar(stage, progress)(*args, **kwargs)

    listener = Listener()
    verbosity = library.get_verbosity()
    library.set_verbosity_warning()
    library.disable_default_handler()
    library.add_handler(listener)
    previous = library.set_tqdm_hook(bar)
    try:
        with warnings.catch_warnings():
            # A deprecation inside the library is for its authors; its own log speaks to users.
            warnings.simplefilter("ignore")
            yield heard
    finally:
        library.set_tqdm_hook(previous)
        library.remove_handler(listener)
        library.enable_default_handler()
        library.set_verbosity(verbosity)


def progress_bar(stage: str, progress: Progress) -> type[_Bar]:
    """What stands in for a `tqdm` class and reports to `progress` instead of drawing."""

    class Bar(_Bar):
        def report(self) -> None:
            progress(stage, int(self.n), int(self.total or 0))

    return Bar


def byte_bar(stage: str, progress: Progress) -> type[_Bar]:
    """`progress_bar` for the Hugging Face hub, which counts received bytes, written bytes and files in bars of their
    own: the written bytes are reported."""

    class Bar(_Bar):
        def report(self) -> None:
            if self.unit == "B" and not self.is_transfer:
                progress(stage, int(self.n), int(self.total or 0))

    return Bar


class _Bar:
    """What libraries ask of tqdm: a loop, manual updates, a total that may change. It draws nothing."""

    def __init__(self, iterable: Any = None, *_: Any, **options: Any) -> None:
        self._iterable = iterable
        self.n: float = options.get("initial") or 0
        self.total = options.get("total") or (len(iterable) if hasattr(iterable, "__len__") else 0)
        self.unit = options.get("unit", "it")
        self.is_transfer = str(options.get("desc", "")).startswith("Downloading")

    def report(self) -> None:
        """Tell whoever watches; the two functions above say whom."""

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update(1)

    def update(self, count: float | None = 1) -> None:
        self.n += count or 0
        self.report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is drawn, so nothing is left to close."""

    def refresh(self, *_: object, **__: object) -> None:
        self.report()

    def set_description(self, *_: object, **__: object) -> None:
        """The stage is the description."""

    set_description_str = set_postfix = set_postfix_str = set_description
