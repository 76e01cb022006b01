"""Weights rounded to int8 in groups, and models whose matrices are rounded."""

import pytest
import torch
from torch import nn

from kev_engine.models.int8 import Int8Embedding, has_int8, use_int8
from kev_engine.models.prepare import prepare
from kev_engine.models.products import Joined, LeanLinear
from kev_engine.native.groups import round_groups
from kev_engine.native.kernels import GROUP
from tests.models.tiny import FAMILIES, tiny_model

IDS = torch.arange(3, 40)[None]


def exactly(model):
    """The logits of a model of the same family whose matrices hold what the int8 ones stand for."""
    plain = tiny_model(model.config.model_type.removesuffix("_text"))
    for module in plain.modules():
        if isinstance(module, nn.Linear):
            whole, groups = round_groups(module.weight)
            module.weight = nn.Parameter(groups.weight(whole), requires_grad=False)
    if type(plain.get_input_embeddings()) is nn.Embedding:
        plain.get_input_embeddings().weight = plain.get_output_embeddings().weight
    return plain(IDS).logits


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_number_is_off_by_more_than_half_a_step_of_its_group(width, dtype):
    weight = (torch.randn(7, width, generator=torch.Generator().manual_seed(0)) * 3 + 1).to(dtype)
    whole, groups = round_groups(weight)
    assert whole.shape == weight.shape
    assert groups.scale.shape == (7, -(-width // GROUP))
    steps = groups.scale.float().repeat_interleave(GROUP, 1)[:, :width]
    slack = 1e-5 if dtype == torch.float32 else 0.1
    assert ((groups.weight(whole).float() - weight.float()).abs() <= steps * 0.501 + slack).all()


def test_numbers_of_four_bits_in_groups_are_kept_exactly():
    """What a Q4_1 file holds (16 steps from the least to the greatest of a group of 32) loses nothing."""
    generator = torch.Generator().manual_seed(1)
    steps = torch.randint(0, 16, (5, 3, GROUP), generator=generator)
    steps[..., :2] = torch.tensor([0, 15])
    weight = (steps * torch.rand(5, 3, 1, generator=generator) - torch.rand(5, 3, 1, generator=generator)).flatten(1)
    whole, groups = round_groups(weight)
    assert torch.allclose(groups.weight(whole), weight, rtol=0, atol=1e-6)


def test_a_group_of_equal_numbers_is_kept():
    weight = torch.tensor([[0.0] * GROUP + [2.5] * GROUP])
    whole, groups = round_groups(weight)
    assert torch.equal(groups.weight(whole), weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rounded_model_computes_what_its_numbers_stand_for(family, kernels):
    for name, used in (("kernels", kernels), ("torch", None)):
        model = tiny_model(family)
        prepare(model, used)
        use_int8(model, used)
        assert has_int8(model)
        assert not any(type(module) is nn.Linear for module in model.modules())
        with torch.no_grad():
            found = model(IDS).logits
        right = exactly(model)
        assert (found - right).abs().max() <= 2e-3 * right.abs().max(), name


def test_both_ways_to_compute_share_their_weights(kernels):
    """The parts of a joined product, and the embedding of a tied output, are views of one matrix of int8."""
    model = tiny_model("llama")
    before = sum(parameter.nbytes for parameter in model.parameters())
    prepare(model, kernels)
    use_int8(model, kernels)
    attention = model.model.layers[0].self_attn
    assert isinstance(attention.qkv_proj, Joined)
    assert isinstance(attention.q_proj, LeanLinear)
    assert attention.q_proj.weight.data_ptr() == attention.qkv_proj.weight.data_ptr()
    assert attention.q_proj.groups.scale.data_ptr() == attention.qkv_proj.groups.scale.data_ptr()
    table = model.get_input_embeddings()
    assert isinstance(table, Int8Embedding)
    assert table.weight.data_ptr() == model.lm_head.weight.data_ptr()
    assert sum(parameter.nbytes for parameter in model.parameters()) < before / 3.5
