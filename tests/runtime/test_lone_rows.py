"""A decode step computes each layer in one call, and in the same bits as by its parts."""

from dataclasses import replace

import pytest

from kev_engine.attention.base import Execution
from kev_engine.config import EngineConfig
from kev_engine.native.layers import LayerKernel
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder
from tests.models.tiny_adapter import write_adapter

NEW_TOKENS = 12


def logprobs(engine, questions):
    return [[item.logprob for item in answer.logprobs] for answer in engine.ask(questions).answers]


@pytest.fixture
def calls(monkeypatch):
    """How many rows each call had that was a whole layer."""
    seen: list[int] = []
    decode = LayerKernel.decode

    def counted(self, x, *rest):
        seen.append(len(x))
        return decode(self, x, *rest)

    monkeypatch.setattr(LayerKernel, "decode", counted)
    return seen


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_whole_layers_and_their_parts_give_the_same_bits(kernels, tmp_path, monkeypatch, calls, family, dtype):
    adapters = {"mine": str(write_adapter(tmp_path / "mine", 1))} if family == "llama" else {}
    config = EngineConfig(
        model=str(tiny_folder(tmp_path / "model", family)), kv_budget_bytes=1 << 20, prefix_cache_bytes=0, dtype=dtype,
        adapters=adapters, kernels="native", block_size=4,
    )
    questions = [
        Question(f"q{length}", prompt_token_ids=tuple(range(5, 5 + length)), max_new_tokens=NEW_TOKENS, ignore_eos=True,
                 logprobs=True)
        for length in (3, 20, 9)
    ]
    questions += [replace(questions[1], id=name, adapter=name) for name in adapters]
    with Engine(config, check=True) as engine:
        calls.clear()  # of the proof at its start
        found = logprobs(engine, questions)
        assert calls == [len(questions)] * 2 * (NEW_TOKENS - 1)
        monkeypatch.setattr(Execution, "lone_rows", lambda *given: None)
        calls.clear()
        assert logprobs(engine, questions) == found
        assert calls == []


def test_a_layer_beside_a_prompt_is_left_to_the_backend(kernels, tmp_path, calls):
    """A step with a prompt in it is not one of lone tokens, and neither is one of a backend that only defines."""
    asked = [Question("long", prompt_token_ids=tuple(range(5, 60)), max_new_tokens=2, ignore_eos=True)]
    for name, expected in (("segment", 2), ("dense", 0)):
        config = EngineConfig(model=str(tiny_folder(tmp_path / name, "llama")), kv_budget_bytes=1 << 20, backend=name)
        with Engine(config) as engine:
            calls.clear()
            engine.ask(asked)
        assert len(calls) == expected
