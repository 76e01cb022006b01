"""Weights and KV in other dtypes through the whole route: answers, memory, and the proofs of isolation."""

import json
from dataclasses import replace

import pytest
import torch

from kev_engine.__main__ import main
from kev_engine.cache import storage
from kev_engine.config import EngineConfig
from kev_engine.errors import InvalidField
from kev_engine.isolation.faults import FAULTS
from kev_engine.runtime.audit import ALONE_BOUND, Proof
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question, SharedContext
from tests.models.tiny import tiny_folder

PAIRS = [
    ("float32", "bfloat16"), ("float32", "int8"), ("bfloat16", None), ("bfloat16", "int8"), ("bfloat16", "float32"),
    ("float16", None), ("float16", "int8"), ("int8", None), ("int8", "int8"),
]
HARMLESS = {"no-reset", "adapter-shift"}
CONTEXT = "The mill stands by the river and has done so since the flood of the year before. "


def asked() -> list[Question]:
    """Two readers of a shared context, one with two samples, and a stranger."""
    readers = [
        Question(f"q{index}", "Why " * (9 * index + 1), shared="mill", max_new_tokens=3, n=1 + index)
        for index in range(2)
    ]
    return [*readers, Question("own", "Where?", context=CONTEXT, max_new_tokens=4)]


SHARED = [SharedContext("mill", CONTEXT)]


def engine(folder, dtype="float32", kv_dtype=None, **settings) -> Engine:
    config = EngineConfig(model=str(folder), dtype=dtype, kv_dtype=kv_dtype, kv_budget_bytes=1 << 20, **settings)
    return Engine(config, check=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny models by family: plain attention, and windows."""
    return {name: tiny_folder(tmp_path_factory.mktemp(name), name) for name in ("llama", "gemma3", "qwen3")}


@pytest.mark.parametrize(("family", "dtype", "kv_dtype"), [
    *(("llama", *pair) for pair in PAIRS), ("gemma3", "bfloat16", "int8"), ("gemma3", "float16", None),
    ("gemma3", "int8", None), ("qwen3", "int8", None),
])
def test_every_pair_answers_and_is_isolated(folders, family, dtype, kv_dtype):
    with engine(folders[family], dtype, kv_dtype, token_budget=64) as running:
        run = running.ask(asked(), SHARED)
        assert {answer.finish_reason for answer in run.answers} <= {"stop", "length"}
        assert (run.stats.dtype, run.stats.kv_dtype) == (dtype, kv_dtype or dtype.replace("int8", "float32"))
        assert run.stats.blocks_leaked == 0
        verdict = running.audit(asked(), SHARED)
    assert verdict.isolated, verdict.questions
    assert all(proof.neighbour_max_abs == proof.poison_max_abs == 0 for proof in verdict.questions)
    assert all(proof.alone_bound >= ALONE_BOUND for proof in verdict.questions)


@pytest.fixture(scope="module", params=[("bfloat16", None), ("float32", "int8"), ("int8", None)],
                ids=["bfloat16", "int8 keys", "int8 weights"])
def noisy(request, folders):
    with engine(folders["llama"], *request.param) as running:
        yield running


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - HARMLESS))
def test_a_fault_is_seen_above_the_noise(noisy, fault):
    assert not noisy.audit(asked(), SHARED, fault=fault).isolated


def test_only_fp32_throughout_has_the_fixed_bound(folders):
    bounds = {}
    for pair in (("float32", None), ("float32", "float32"), ("bfloat16", None)):
        with engine(folders["llama"], *pair) as running:
            bounds[pair] = running.audit(asked()[-1:]).questions[0].alone_bound
    assert bounds["float32", None] == bounds["float32", "float32"] == ALONE_BOUND
    assert bounds["bfloat16", None] > 10 * ALONE_BOUND


def test_the_noise_floor_is_measured_without_neighbours(folders):
    """A leak cannot widen the bound it is measured by: by itself and beside a leaking twin it is of one size."""
    own = asked()[-1]
    with engine(folders["llama"], "bfloat16") as running:
        [alone] = running.audit([own]).questions
        beside = running.audit([own, replace(own, id="twin")], fault="ones-2d").questions[1]
    assert beside.alone_bound < 2 * alone.alone_bound
    assert beside.alone_max_abs > 2 * beside.alone_bound


def test_one_scale_for_all_tokens_would_be_seen(folders, monkeypatch):
    """The mutation of int8: with the largest number of the step as scale, neighbours move my logits."""

    def coupled(numbers):
        scale = numbers.abs().max() / 127
        return (numbers / scale).round().to(torch.int8), scale.expand(numbers.shape[:-1])

    with engine(folders["llama"], "float32", "int8") as running:
        assert running.audit(asked(), SHARED).isolated
        monkeypatch.setattr(storage, "quantize", coupled)
        assert any(proof.neighbour_max_abs > 0 for proof in running.audit(asked(), SHARED).questions)


def test_bytes_follow_the_stored_dtype_in_plan_gauge_and_admission(folders):
    figures = {}
    for kv_dtype in ("float32", "int8"):
        with engine(folders["llama"], "float32", kv_dtype) as running:
            run = running.ask(asked(), SHARED)
            figures[kv_dtype] = run.stats.kv_bytes_predicted, run.stats.kv_bytes_peak, running.info.bytes_per_token
            assert running.info.bytes_per_token == running._shape.bytes_per_token
            held = sum(tensor.nbytes for tensor in running._worker.storage.tensors)
            # The zero block is there beside the budget.
            assert held == run.stats.kv_bytes_budget + running.info.block_size * running.info.bytes_per_token
    ratio = (8 + 4) / 32  # eight numbers a head in one byte each, and a scale of four
    for full, small in zip(*figures.values(), strict=True):
        assert small == full * ratio


@pytest.mark.parametrize(("dtype", "kv_dtype", "words"), [
    ("float32", "int4", "kv_dtype is 'int4', but with dtype float32 it must be one of float32, bfloat16, int8"),
    ("float32", "float16", "kv_dtype is 'float16'"),
    ("int8", "float16", "kv_dtype is 'float16', but with dtype int8 it must be one of float32, bfloat16, int8"),
    ("float64", None, "dtype is 'float64', but it must be one of float32, bfloat16, float16, int8"),
])
def test_a_dtype_that_cannot_be_had_is_refused_by_name(folders, dtype, kv_dtype, words):
    with pytest.raises(InvalidField, match=words):
        engine(folders["llama"], dtype, kv_dtype)


def test_ties_are_counted_and_do_not_fail_and_real_differences_do():
    proof = Proof("q", 0.05, True, 2, 0.0, 0.0, alone_bound=0.1)
    assert proof.is_isolated
    assert not replace(proof, alone_tokens_equal=False).is_isolated
    assert not replace(proof, neighbour_max_abs=1e-9).is_isolated
    assert not replace(proof, alone_max_abs=0.2).is_isolated


def test_the_command_line_takes_both_dtypes_and_shows_bound_and_ties(folders, tmp_path, capsys):
    file = tmp_path / "questions.json"
    file.write_text(json.dumps([{"id": "a", "question": "Why?", "max_new_tokens": 3}]))
    common = [str(file), "--model", str(folders["llama"]), "--kv-budget", str(1 << 20), "--device", "cpu",
              "--dtype", "bfloat16", "--kv-dtype", "int8"]
    assert main(["ask", *common, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert (run["dtype"], run["kv_dtype"]) == ("bfloat16", "int8")
    assert main(["ask", *common]) == 0
    assert "bfloat16, keys and values int8 · segment, because" in capsys.readouterr().out
    assert main(["audit", *common]) == 0
    printed = capsys.readouterr().out
    assert "bound" in printed
    assert "ties" in printed
    assert main(["audit", *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"][0]["alone_bound"] >= ALONE_BOUND


@pytest.mark.model
def test_the_embedded_model_answers_in_bf16_with_int8_keys(embedded_home):
    """What a tiny model cannot show: the answer is still right. That the pair is isolated is proven above."""
    config = EngineConfig(home=embedded_home, dtype="bfloat16", kv_dtype="int8", kv_budget_bytes=64 << 20)
    questions = [
        Question("france", "What is the capital of France?", max_new_tokens=7),
        Question("secret", "Which word?", context="The secret word is marzipan.", max_new_tokens=1),
    ]
    with Engine(config, check=True) as running:
        assert "Paris" in running.ask(questions).answers[0].text
