"""A model that leaks between segments is refused before it answers, whatever its names and calls promise."""

from contextlib import closing

import pytest
import torch

from kev_engine.config import EngineConfig
from kev_engine.errors import ModelUnsupported
from kev_engine.isolation.faults import FAULTS
from kev_engine.runtime import engine as engine_module
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.entry import require_isolation
from tests.models.tiny import tiny_folder


def mixes_along_the_row(module, given, output):
    """As a convolution would: each token hears a little of the one before it in the row, whoever it belongs to."""
    return output + 0.01 * output.roll(1, dims=1)


def counts_rows(module, given, output):
    """As a norm over the batch would: the same for every token, and another with other company."""
    return output * (1 + 0.01 * output.abs().mean())


def makes_nan(module, given, output):
    return output * float("nan")


@pytest.mark.parametrize(("hook", "words"), [
    (mixes_along_the_row, "moved by .* when the other's tokens or memory were changed"),
    (counts_rows, "moved by .* when the other's tokens or memory were changed"),
    (makes_nan, "no numbers in float32"),
])
def test_a_leaking_layer_is_refused_at_the_start(hook, words, tmp_path, monkeypatch):
    usual = engine_module.load

    def load(*given, **named):
        loaded = usual(*given, **named)
        loaded.model.model.layers[1].mlp.register_forward_hook(hook)
        return loaded

    config = EngineConfig(model=str(tiny_folder(tmp_path)), kv_budget_bytes=1 << 20)
    Engine(config).close()
    monkeypatch.setattr(engine_module, "load", load)
    with pytest.raises(ModelUnsupported, match=f"backend 'segment': .*{words}"):
        Engine(config)


def test_a_change_that_is_the_same_for_everybody_passes(tmp_path, monkeypatch):
    usual = engine_module.load

    def load(*given, **named):
        loaded = usual(*given, **named)
        loaded.model.lm_head.register_forward_hook(lambda module, given, output: output * torch.tensor(2.0))
        return loaded

    monkeypatch.setattr(engine_module, "load", load)
    Engine(EngineConfig(model=str(tiny_folder(tmp_path)), kv_budget_bytes=1 << 20)).close()


def test_every_broken_mask_is_refused(tmp_path):
    broken = [fault for fault in FAULTS.values() if fault.cells is not None or fault.adds_mask]
    assert len(broken) > 3
    with closing(Engine(EngineConfig(model=str(tiny_folder(tmp_path)), kv_budget_bytes=1 << 20))) as engine:
        subject = engine._shape, engine.info.block_size, engine._facts
        require_isolation(engine._runner.dense(), *subject)
        for fault in broken:
            with pytest.raises(ModelUnsupported):
                require_isolation(engine._runner.dense(fault), *subject)
