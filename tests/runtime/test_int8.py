"""int8 weights through the whole route: answers, proofs of isolation, adapters, the prefix cache."""

import pytest

from kev_engine import Engine, EngineConfig, Question, SharedContext
from kev_engine.errors import InvalidField
from kev_engine.isolation.faults import FAULTS
from kev_engine.models import products
from tests.models.tiny import tiny_adapter, tiny_folder

HARMLESS = {"no-reset", "adapter-shift"}
CONTEXT = "The mill stands by the river and has done so since the flood of the year before. "
SHARED = [SharedContext("mill", CONTEXT)]
ASKED = [
    *(Question(f"q{index}", "Why " * (9 * index + 1), shared="mill", max_new_tokens=3, n=1 + index)
      for index in range(2)),
    Question("own", "Where?", context=CONTEXT, max_new_tokens=4),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: tiny_folder(tmp_path_factory.mktemp(name), name) for name in ("llama", "qwen3", "gemma3")}


def engine(folder, **settings) -> Engine:
    return Engine(EngineConfig(model=str(folder), dtype="int8", kv_budget_bytes=1 << 20, **settings), check=True)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_answers_are_isolated_to_the_bit(folders, family, kernels):
    with engine(folders[family], kernels=kernels) as running:
        run = running.ask(ASKED, SHARED)
        assert {answer.finish_reason for answer in run.answers} <= {"stop", "length"}
        assert (run.stats.dtype, run.stats.kv_dtype) == ("int8", "float32")
        verdict = running.audit(ASKED, SHARED)
    assert verdict.isolated, verdict.questions
    assert all(proof.neighbour_max_abs == proof.poison_max_abs == 0 for proof in verdict.questions)


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - HARMLESS))
def test_a_fault_is_seen(folders, fault):
    with engine(folders["llama"]) as running:
        assert not running.audit(ASKED, SHARED, fault=fault).isolated


def test_one_scale_for_all_rows_would_be_seen(folders, monkeypatch):
    """The mutation: rows of activations rounded together, as per-tensor quantization does, move my logits."""
    whole = products.product

    def coupled(x, weight, bias, kernels=None, groups=None):
        step = x.abs().max() / 127
        return whole((x / step).round() * step, weight, bias, kernels, groups)

    with engine(folders["llama"]) as running:
        assert running.audit(ASKED, SHARED).isolated
        monkeypatch.setattr(products, "product", coupled)
        assert any(proof.neighbour_max_abs > 0 for proof in running.audit(ASKED, SHARED).questions)


def test_adapters_move_their_own_questions_and_no_other(folders, tmp_path):
    with engine(folders["llama"]) as running:
        running.load_adapter("a", tiny_adapter(tmp_path / "a", 1))
        alone = {}
        for name in (None, "a"):
            [alone[name]] = running.ask([Question("x", "Where?", adapter=name, max_new_tokens=6)]).answers
        assert alone[None].token_ids != alone["a"].token_ids
        mixed = running.ask([
            Question("x", "Where?", max_new_tokens=6), Question("y", "Where?", adapter="a", max_new_tokens=6),
        ]).answers
    assert [answer.token_ids for answer in mixed] == [alone[None].token_ids, alone["a"].token_ids]


def test_the_matrices_take_a_quarter_and_a_bit(folders):
    sizes = {}
    for dtype in ("float32", "int8"):
        with Engine(EngineConfig(model=str(folders["llama"]), dtype=dtype, kv_budget_bytes=1 << 20)) as running:
            sizes[dtype] = running.info.weight_bytes
            assert running.info.kv_dtype == "float32"
    assert sizes["float32"] / 4 < sizes["int8"] < sizes["float32"] / 2


def test_what_cannot_be_had_is_refused_by_name(folders):
    for wrong, words in (
        ({"dtype": "int4"}, "dtype is 'int4', but it must be one of float32, bfloat16, float16, int8"),
        ({"kv_dtype": "float16"}, "with dtype int8 it must be one of float32, bfloat16, int8"),
    ):
        with pytest.raises(InvalidField, match=words):
            Engine(EngineConfig(**{"model": str(folders["llama"]), "dtype": "int8", **wrong}))
