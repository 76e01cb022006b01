"""Fixtures that several packages' tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from kev_engine.config import cache_home
from kev_engine.models.embedded import embedded
from kev_engine.models.progress import silent
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


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_home: Path) -> Any:
    """The tokenizer of the embedded model, chat template included."""
    return AutoTokenizer.from_pretrained(embedded(embedded_home, silent).path)
