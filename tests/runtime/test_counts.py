"""What a run costs, in counts and never in seconds: forwards, tokens in each, operators of a decode step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kev_engine.config import EngineConfig
from kev_engine.models.fused import FusedLayer
from kev_engine.native.layers import LayerKernel
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Step
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder
from tests.models.tiny_adapter import write_adapter

OPERATORS = {"native": 90, "torch": 1075}
"""The most operators torch may run in a decode step of eight rows and two layers; those inside others count too."""


def questions(lengths=(30, 12, 7, 21, 9, 40, 3, 18), new_tokens=6) -> list[Question]:
    rng = np.random.default_rng(0)
    return [
        Question(f"q{index}", prompt_token_ids=tuple(rng.integers(3, 300, length).tolist()), max_new_tokens=new_tokens,
                 ignore_eos=True)
        for index, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module", params=["native", "torch"])
def engine(request, kernels, tmp_path_factory):
    folder = str(tiny_folder(tmp_path_factory.mktemp("counts"), "llama"))
    config = EngineConfig(model=folder, kv_budget_bytes=1 << 20, kernels=request.param, prefix_cache_bytes=0)
    with Engine(config, check=True) as engine:
        yield engine


def test_forwards_and_tokens(engine):
    """All prompts enter in one forward, and each later one takes a token of every question."""
    stats = engine.ask(questions()).stats
    assert stats.tokens_per_forward == (140, *[8] * 5)
    assert stats.sequences_per_forward == (8,) * 6


def test_operators_of_a_decode_step(engine):
    plans = [event.plan for event in engine.stream(questions()) if isinstance(event, Step)]
    runner, storage = engine._worker.runner, engine._worker.storage
    runner.run(plans[-1], storage)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        runner.run(plans[-1], storage)
    count = sum(event.count for event in recorded.key_averages() if event.key.startswith("aten::"))
    assert 50 < count <= OPERATORS[engine.config.kernels], count


def test_the_head_sees_only_sampled_rows(engine):
    """Of 140 prompt tokens eight are drawn from: the head's rows are counted where they enter it."""
    seen: list[int] = []
    head = engine._runner.model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[-2]))
    try:
        engine.ask(questions(new_tokens=2))
    finally:
        handle.remove()
    assert seen == [8, 8]


@pytest.mark.parametrize("adapter", [None, "mine"])
def test_the_last_layer_sees_only_rows_that_are_read(kernels, tmp_path, monkeypatch, adapter):
    """Two layers: what stands behind the attention of prompts is counted, and what is left out moves no logit."""
    seen: list[int] = []
    leave = LayerKernel.leave

    def counted(self, x, *rest):
        seen.append(len(x))
        return leave(self, x, *rest)

    monkeypatch.setattr(LayerKernel, "leave", counted)
    config = EngineConfig(
        model=str(tiny_folder(tmp_path, "llama")), kv_budget_bytes=1 << 20, kernels="native", prefix_cache_bytes=0,
        adapters={"mine": str(write_adapter(tmp_path / "mine", 1))},
    )
    mixed = [replace(one, adapter=adapter if index % 2 else None, logprobs=True)
             for index, one in enumerate(questions((5, 9, 7), 3))]
    with Engine(config, check=True) as engine:
        engine.ask(mixed)
        seen.clear()
        found = [[item.logprob for item in answer.logprobs] for answer in engine.ask(mixed).answers]
        assert seen == [21, 3]
        monkeypatch.setattr(FusedLayer, "_rows_read", lambda *given: None)
        seen.clear()
        assert [[item.logprob for item in answer.logprobs] for answer in engine.ask(mixed).answers] == found
        assert seen == [21, 21]
        monkeypatch.undo()
        scored = engine.ask([replace(one, prompt_logprobs=True) for one in mixed])
        monkeypatch.setattr(FusedLayer, "_rows_read", lambda *given: None)
        again = engine.ask([replace(one, prompt_logprobs=True) for one in mixed])
    assert scored.answers[0].prompt_logprobs
    assert [one.prompt_logprobs for one in scored.answers] == [one.prompt_logprobs for one in again.answers]


def test_threads_do_not_move_the_answers(engine):
    before = torch.get_num_threads()
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answers.append([answer.token_ids for answer in engine.ask(questions()).answers])
    torch.set_num_threads(before)
    assert answers[0] == answers[1]
