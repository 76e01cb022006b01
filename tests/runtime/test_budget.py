"""What a machine gives, each choice with its reason: backend and block size."""

import pytest
import torch

from kev_engine.attention.dense import DenseBackend
from kev_engine.attention.flash import FlashBackend
from kev_engine.attention.segment import SegmentBackend
from kev_engine.cache.storage import KVShape
from kev_engine.config import EngineConfig
from kev_engine.errors import InvalidField, ModelUnsupported
from kev_engine.runtime import budget
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question
from tests.attention import flash_standin
from tests.models.tiny import tiny_folder

CPU = torch.device("cpu")
SHAPE = KVShape(2, 2, 8, torch.bfloat16)


@pytest.fixture
def flash_on_cpu(monkeypatch):
    """The known backends, flash among them on its stand-in."""
    known = {item.name: item for item in (FlashBackend(flash_standin, "cpu"), SegmentBackend(), DenseBackend())}
    monkeypatch.setattr(budget, "backends", lambda kernels=None: known)


def test_the_cpu_takes_segment_and_says_why_not_flash():
    backend, reason = budget.pick_backend(None, frozenset(), CPU, SHAPE)
    assert backend.name == "segment"
    assert reason == "segment, because backend 'flash' needs a CUDA device and this one is cpu."


def test_flash_comes_first_where_it_can_serve(flash_on_cpu):
    backend, reason = budget.pick_backend(None, frozenset({"softcap"}), CPU, SHAPE)
    assert (backend.name, reason) == ("flash", "flash, the default on cpu.")


@pytest.mark.parametrize(("needs", "dtype", "chosen", "words"), [
    ({"sinks"}, torch.bfloat16, "dense", "does not compute sinks"),
    (set(), torch.float32, "segment", "in float16 or bfloat16 and not in float32"),
])
def test_another_backend_serves_what_flash_cannot(flash_on_cpu, needs, dtype, chosen, words):
    backend, reason = budget.pick_backend(None, frozenset(needs), CPU, KVShape(2, 2, 8, dtype))
    assert backend.name == chosen
    assert words in reason


def test_flash_by_name_is_refused_here_with_the_reason():
    with pytest.raises(ModelUnsupported, match="needs a CUDA device and this one is cpu"):
        budget.pick_backend("flash", frozenset(), CPU, SHAPE)


@pytest.mark.parametrize(("given", "backend", "size"), [
    (None, SegmentBackend(), 16), (None, FlashBackend(), 256), (48, SegmentBackend(), 48), (512, FlashBackend(), 512),
])
def test_the_block_size_follows_the_backend_unless_it_was_asked_for(given, backend, size):
    assert budget.pick_block_size(given, backend) == size


def test_a_block_size_the_backend_cannot_read_is_refused_by_name():
    with pytest.raises(InvalidField, match="block_size is 16, but backend 'flash' reads pages of a multiple of 256"):
        budget.pick_block_size(16, FlashBackend())


def test_an_engine_on_flash_has_its_pages_and_stays_isolated(flash_on_cpu, tmp_path):
    """Shared context with a tail, chunks, decode, and the audit's storage: all on pages of 256 tokens."""
    folder = str(tiny_folder(tmp_path, "mistral"))
    config = EngineConfig(model=folder, dtype="bfloat16", kv_budget_bytes=1 << 20, token_budget=64)
    asked = [Question(f"q{index}", "Why? " * (20 * index + 1), max_new_tokens=4, n=2) for index in range(3)]
    with Engine(config, check=True) as engine:
        assert (engine.info.backend, engine.info.block_size) == ("flash", 256)
        assert engine.info.kv_bytes_budget % (256 * engine.info.bytes_per_token) == 0
        run = engine.ask(asked)
        assert {answer.finish_reason for answer in run.answers} <= {"stop", "length"}
        assert run.stats.blocks_leaked == 0
        assert run.stats.kv_bytes_peak % (256 * engine.info.bytes_per_token) == 0
        verdict = engine.audit(asked)
    assert all(proof.neighbour_max_abs == 0 and proof.poison_max_abs == 0 for proof in verdict.questions)
    with pytest.raises(InvalidField, match="block_size"), Engine(EngineConfig(
        model=folder, dtype="bfloat16", kv_budget_bytes=1 << 20, block_size=16,
    )):
        pass
