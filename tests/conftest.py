"""Fixtures that several packages' tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from kev_engine.config import cache_home
from kev_engine.models.embedded import embedded
from kev_engine.models.progress import silent
from kev_engine.native import kernels as native
from kev_engine.native.kernels import Kernels, NoKernels, load_kernels


@pytest.fixture(scope="session")
def embedded_home() -> Path:
    """The usual KEV_HOME with the embedded model in it, fetched and converted once and kept between runs."""
    home = cache_home(os.environ)
    embedded(home, silent)
    return home


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """The compiled kernels; what needs them is skipped where no C compiler is."""
    try:
        return load_kernels(cache_home(os.environ))
    except NoKernels as reason:
        pytest.skip(str(reason))


@pytest.fixture
def compiled_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str, str], Kernels]:
    """Kernels compiled from the sources with one text in another's place, in a hurry: the test waits for each."""
    monkeypatch.setattr(native, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in native.FLAGS))
    monkeypatch.setattr(native, "SOURCES", sources := tmp_path / "sources")
    sources.mkdir()
    for source in Path(native.__file__).parent.glob("*.[ch]"):
        (sources / source.name).write_text(source.read_text())

    def load(file: str, right: str, wrong: str) -> Kernels:
        text = (sources / file).read_text()
        assert right in text
        (sources / file).write_text(text.replace(right, wrong))
        return load_kernels(tmp_path)

    return load


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_home: Path) -> Any:
    """The tokenizer of the embedded model, chat template included."""
    return AutoTokenizer.from_pretrained(embedded(embedded_home, silent).path)
