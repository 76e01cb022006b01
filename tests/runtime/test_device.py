"""Device-neutral code, without a device: fake tensors on "meta" refuse to meet one on the CPU, as CUDA's would."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.router import attach
from kev_engine.attention.base import ATTN_IMPLEMENTATION, register
from kev_engine.attention.dense import DenseBackend
from kev_engine.attention.flash import FlashBackend
from kev_engine.attention.segment import SegmentBackend
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.faults import FAULTS
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence
from tests.models.tiny import VOCAB_SIZE, WINDOW, tiny_config

ELSEWHERE = torch.device("meta")
BACKENDS = {
    "segment": (SegmentBackend(), 16),
    "dense": (DenseBackend(FAULTS["float01"]), 16),
    "flash": (FlashBackend(SimpleNamespace(
        flash_attn_varlen_func=lambda q, *given, **named: q + same_device(*given, *named.values()),
        flash_attn_with_kvcache=lambda q, *given, **named: q + same_device(*given, *named.values()),
    ), "meta"), 256),
}


def same_device(*given):
    """Zero, on the one device of all tensors given."""
    [device] = {item.device for item in given if isinstance(item, torch.Tensor)}
    return torch.zeros((), device=device)


@pytest.fixture(autouse=True)
def fake():
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def model(family):
    register()
    with torch.device(ELSEWHERE):
        config = tiny_config(family)
        built = AutoModelForCausalLM.from_config(config, attn_implementation=ATTN_IMPLEMENTATION, dtype=torch.bfloat16)
    return built.eval().requires_grad_(False)


def steps(backend, block_size, family, kv_dtype):
    """Run a shared context with a tail, a reader and a stranger to their ends; the shape of each step's logits."""
    built = model(family)
    windows = frozenset({None, WINDOW} if family == "gemma3" else {None})
    runner = ModelRunner(built, backend, attach(built, AdapterPool(built, 4)), windows, ELSEWHERE)
    pool = BlockPool(12, block_size)
    storage = KVStorage(KVShape(2, 2, 8, torch.bfloat16, kv_dtype), pool.num_blocks, block_size, ELSEWHERE)
    scheduler = Scheduler(pool, 24)
    context = Sequence(list(range(20)), 0)
    scheduler.submit([context, Sequence([*range(20), 3, 4], 2, parent=context), Sequence([1, 2, 3] * 5, 2)])
    shapes = []
    while (scheduled := scheduler.next_step()) is not None:
        logits = runner.run(scheduled.plan, storage)
        assert logits.device == ELSEWHERE
        shapes.append(tuple(logits.shape))
        scheduler.commit(scheduled)
        for sequence in scheduled.sampled:
            sequence.tokens.append(1)
            if sequence.num_output >= sequence.max_new_tokens:
                scheduler.finish(sequence)
    storage.fill_slots(torch.from_numpy(np.arange(3)), float("nan"))
    return shapes


@pytest.mark.parametrize(("name", "family", "kv_dtype"), [
    ("segment", "gemma3", torch.int8), ("dense", "llama", torch.float32), ("flash", "llama", None),
])
def test_a_whole_run_stays_on_the_models_device(name, family, kv_dtype):
    assert steps(*BACKENDS[name], family, kv_dtype)[-1] == (2, VOCAB_SIZE)


def test_a_tensor_left_on_the_cpu_is_noticed(monkeypatch):
    """The mutation: a state whose masks were made without naming the device."""
    usual = SegmentBackend._readers
    monkeypatch.setattr(SegmentBackend, "_readers", lambda self, plan, storage, window: usual(
        self, plan, SimpleNamespace(device=torch.device("cpu"), shape=storage.shape), window
    ))
    with pytest.raises(RuntimeError, match="device"):
        steps(*BACKENDS["segment"], "llama", None)
