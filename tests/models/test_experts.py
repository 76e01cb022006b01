"""Experts in tiles: the same sums as transformers' own, and no product whose shape depends on a neighbour's routing."""

import pytest
import torch

from kev_engine.models import experts
from kev_engine.models.experts import TILE, use_tiled_experts
from tests.models.tiny import VOCAB_SIZE, tiny_model

FAMILIES = ("qwen3_moe", "gpt_oss")
TOKENS = torch.arange(3, 43)[None] % VOCAB_SIZE


def logits(model, tokens):
    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=False).logits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_tiles_give_transformers_own_result(family):
    model = tiny_model(family)
    model.set_experts_implementation("eager")
    right = logits(model, TOKENS)
    use_tiled_experts(model)
    assert (logits(model, TOKENS) - right).abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_every_product_has_one_shape(family, monkeypatch):
    seen = set()
    usual = experts.linear

    def linear(rows, weight, bias):
        seen.add(len(rows))
        return usual(rows, weight, bias)

    monkeypatch.setattr(experts, "linear", linear)
    model = tiny_model(family)
    use_tiled_experts(model)
    for count in (1, 2, 17, 40):
        logits(model, TOKENS[:, :count])
    assert seen == {TILE}


@pytest.mark.parametrize("size", [32, 200])
def test_a_token_routed_like_others_or_by_itself_has_the_same_bits(size):
    """One row among 40 whose companions are drawn again and again: where it stands in its tile must not matter."""
    model = tiny_model("qwen3_moe", hidden_size=size, moe_intermediate_size=size // 2)
    use_tiled_experts(model)
    layer = model.model.layers[0].mlp.experts
    generator = torch.Generator().manual_seed(0)
    mine = torch.randn(1, size, generator=generator)
    choice, weights = torch.tensor([[1, 3]]), torch.tensor([[0.7, 0.3]])
    found = []
    for _ in range(12):
        others = torch.randn(39, size, generator=generator)
        routed = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(39)])
        at = int(torch.randint(0, 40, (), generator=generator))
        rows, index = torch.cat([others[:at], mine, others[at:]]), torch.cat([routed[:at], choice, routed[at:]])
        shares = torch.cat([torch.full((at, 2), 0.5), weights, torch.full((39 - at, 2), 0.5)])
        found.append(layer(rows, index, shares)[at])
    assert all(torch.equal(row, found[0]) for row in found)


def test_a_model_without_experts_stays_as_it_is():
    model = tiny_model("llama")
    right = logits(model, TOKENS)
    use_tiled_experts(model)
    assert torch.equal(logits(model, TOKENS), right)
