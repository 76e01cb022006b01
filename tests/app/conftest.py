"""A real engine on a tiny random model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kev_engine import Engine, EngineConfig
from tests.models.tiny import tiny_folder


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"), "llama")
    config = EngineConfig(model=str(folder), threads=1, kv_budget_bytes=2**22, home=tmp_path_factory.mktemp("home"))
    with Engine(config) as engine:
        yield engine
