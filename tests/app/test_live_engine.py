"""The engine of the moment: who keeps a LiveEngine sees the new model, and the old one is closed."""

from __future__ import annotations

import pytest

from app.handlers.run import RunHandlers
from app.live_engine import LiveEngine
from kev_engine import Engine, EngineConfig, Question
from kev_engine.errors import EngineClosed
from tests.models.tiny import tiny_folder


def test_a_handler_follows_the_engine_and_the_old_one_is_closed(tmp_path):
    config = EngineConfig(model=str(tiny_folder(tmp_path / "one", "llama")), threads=1, kv_budget_bytes=2**20)
    first, second = Engine(config), Engine(config)
    live = LiveEngine(first)
    handlers = RunHandlers(live)
    assert handlers.engine.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens
    live.replace(second)
    assert live.current is second
    assert handlers.engine.info is second.info
    with pytest.raises(EngineClosed):
        first.ask([Question("A", "Hello")])
    assert handlers.engine.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens
    live.current.close()
