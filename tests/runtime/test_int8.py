"""int8 weights through the whole route: what is true of them beside what tests/runtime/test_dtypes.py holds all to."""

import pytest
from safetensors.torch import load_file, save_file

from kev_engine import Engine, EngineConfig, Question
from kev_engine.errors import AdapterRefused
from kev_engine.models import products
from tests.models.tiny import tiny_adapter, tiny_folder
from tests.runtime.test_dtypes import SHARED, asked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("llama"))


def engine(folder, **settings) -> Engine:
    return Engine(EngineConfig(**{"model": str(folder), "dtype": "int8", "kv_budget_bytes": 1 << 20, **settings}))


def test_without_the_kernels_answers_are_isolated_to_the_bit(folder):
    with engine(folder, kernels="torch") as running:
        verdict = running.audit(asked(), SHARED)
    assert verdict.isolated, verdict.questions
    assert all(proof.neighbour_max_abs == proof.poison_max_abs == 0 for proof in verdict.questions)


def test_one_scale_for_all_rows_would_be_seen(folder, monkeypatch):
    """The mutation: rows of activations rounded together, as per-tensor quantization does, move my logits."""
    whole = products.product

    def coupled(x, weight, bias, kernels=None, groups=None):
        step = x.abs().max() / 127
        return whole((x / step).round() * step, weight, bias, kernels, groups)

    with engine(folder) as running:
        assert running.audit(asked(), SHARED).isolated
        monkeypatch.setattr(products, "product", coupled)
        assert any(proof.neighbour_max_abs > 0 for proof in running.audit(asked(), SHARED).questions)


def test_adapters_move_their_own_questions_and_no_other(folder, tmp_path):
    with engine(folder) as running:
        running.load_adapter("a", tiny_adapter(tmp_path / "a", 1))
        alone = {}
        for name in (None, "a"):
            [alone[name]] = running.ask([Question("x", "Where?", adapter=name, max_new_tokens=6)]).answers
        assert alone[None].token_ids != alone["a"].token_ids
        mixed = running.ask([
            Question("x", "Where?", max_new_tokens=6), Question("y", "Where?", adapter="a", max_new_tokens=6),
        ]).answers
    assert [answer.token_ids for answer in mixed] == [alone[None].token_ids, alone["a"].token_ids]


def test_the_matrices_take_a_quarter_and_a_bit(folder):
    sizes = {}
    for dtype in ("float32", "int8"):
        with engine(folder, dtype=dtype) as running:
            sizes[dtype] = running.info.weight_bytes
    assert sizes["float32"] / 4 < sizes["int8"] < sizes["float32"] / 2


@pytest.mark.parametrize(("factor", "is_own"), [(1.0, True), (2.0, False), (1.05, False)])
def test_a_copy_of_the_embedding_is_the_bases_own_or_refused(folder, tmp_path, factor, is_own):
    """The rounded base cannot tell its weight to the bit, but never takes another matrix for it."""
    source = tiny_adapter(tmp_path / "a", 1)
    file = source / "adapter_model.safetensors"
    table = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    save_file(load_file(file) | {"base_model.model.model.embed_tokens.weight": table * factor}, file)
    with engine(folder) as running:
        if is_own:
            running.load_adapter("a", source)
        else:
            with pytest.raises(AdapterRefused, match=r"embed_tokens"):
                running.load_adapter("a", source)
