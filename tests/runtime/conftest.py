from collections.abc import Iterator
from pathlib import Path

import pytest

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine


@pytest.fixture(scope="session")
def embedded_engine(embedded_home: Path) -> Iterator[Engine]:
    """The engine on the embedded model with the demo adapters, invariants checked after every step."""
    assets = Path(__file__).parents[2] / "assets" / "adapters"
    adapters = {path.parent.name: str(path.parent) for path in sorted(assets.glob("*/adapter_config.json"))}
    with Engine(EngineConfig(home=embedded_home, adapters=adapters, kv_budget_bytes=256 << 20), check=True) as engine:
        yield engine
