"""What a run costs, in counts and never in seconds: forwards, tokens in each, operators of a decode step."""

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Step
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder

OPERATORS = {"native": 330, "torch": 1075}
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


def test_threads_do_not_move_the_answers(engine):
    before = torch.get_num_threads()
    answers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        answers.append([answer.token_ids for answer in engine.ask(questions()).answers])
    torch.set_num_threads(before)
    assert answers[0] == answers[1]
