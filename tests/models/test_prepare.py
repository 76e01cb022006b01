"""A prepared model gives the original's logits, for every family, and what would not is left as it is."""

import pytest
import torch

from kev_engine.models.prepare import prepare
from tests.models.tiny import FAMILIES, NEEDY_FAMILIES, tiny_model

TOLERANCE = 1e-5
WHOLE = {"LeanLinear": 15, "OneStepNorm": 5, "FusedAttention": 2, "FusedFeedForward": 2, "FusedLayer": 2}
EXPECTED = {
    "llama": WHOLE, "qwen2": WHOLE, "mistral": WHOLE, "qwen3": WHOLE | {"OneStepNorm": 9},
    "granite": {kind: number for kind, number in WHOLE.items() if kind != "FusedLayer"},  # weighs what is added
    "smollm3": WHOLE | {"FusedAttention": 1},  # its other layer does not rotate
    "glm4": {"LeanLinear": 13, "OneStepNorm": 9},  # rotates neighbours instead of halves
    "gemma3": {"LeanLinear": 15, "FusedAttention": 2, "FusedFeedForward": 2},  # its norms add 1 to the weight
}


def logits(model, count):
    with torch.inference_mode():
        return model(torch.arange(3, 3 + count)[None], use_cache=False).logits


@pytest.mark.parametrize("family", [*FAMILIES, *NEEDY_FAMILIES])
@pytest.mark.parametrize("has_kernels", [True, False])
def test_every_family_keeps_its_logits(kernels, family, has_kernels):
    attention = "eager" if family in NEEDY_FAMILIES else "sdpa"
    model, original = tiny_model(family, attention), tiny_model(family, attention)
    done = prepare(model, kernels if has_kernels else None)
    assert family not in EXPECTED or dict(done) == EXPECTED[family]
    for count in (1, 5, 40):
        right = logits(original, count)
        assert (logits(model, count) - right).abs().max() <= TOLERANCE * right.abs().max()


def test_names_and_memory_stay(kernels):
    model, original = tiny_model("llama", "sdpa"), tiny_model("llama", "sdpa")
    prepare(model, kernels)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in original.named_parameters()]
    attention = model.model.layers[0].self_attn
    assert attention.q_proj.weight.data_ptr() == attention.qkv_proj.weight.data_ptr(), "one memory, two names"
    assert torch.equal(attention.k_proj.weight, original.model.layers[0].self_attn.k_proj.weight)
    x = torch.randn(5, 32)
    whole = attention.qkv_proj(x)
    for name, columns in attention.qkv_proj.parts.items():
        torch.testing.assert_close(whole[:, columns], getattr(attention, name)(x), atol=1e-5, rtol=0)


def test_a_module_that_only_looks_right_stays(kernels):
    """The same parts under the same names, computing something else: judged by what comes out, not by a name."""
    model, original = tiny_model("llama", "sdpa"), tiny_model("llama", "sdpa")
    for each in (model, original):
        layer = each.model.layers[0]
        mlp, attention, norm = layer.mlp, layer.self_attn, layer.input_layernorm
        usual = attention.forward
        mlp.forward = lambda x, mlp=mlp: mlp.down_proj(mlp.gate_proj(x) * mlp.act_fn(mlp.up_proj(x)))
        attention.forward = lambda *a, usual=usual, **k: (usual(*a, **k)[0] * 1.001, None)
        norm.forward = lambda x, norm=norm: torch.nn.functional.layer_norm(x, norm.weight.shape, norm.weight)
        whole = each.model.layers[1].forward
        each.model.layers[1].forward = lambda x, whole=whole, **k: whole(x, **k) + x
    done = prepare(model, kernels)
    assert (done["FusedFeedForward"], done["FusedAttention"], done["OneStepNorm"], done["FusedLayer"]) == (1, 1, 4, 1)
    assert not hasattr(model.model.layers[0].self_attn, "qkv_proj")
    right = logits(original, 6)
    assert (logits(model, 6) - right).abs().max() <= TOLERANCE * right.abs().max()


def test_generate_still_works_on_a_prepared_model(kernels):
    model, original = tiny_model("llama", "sdpa"), tiny_model("llama", "sdpa")
    prepare(model, kernels)
    ids = torch.arange(3, 12)[None]
    ours, theirs = (each.generate(ids, max_new_tokens=8, do_sample=False) for each in (model, original))
    assert torch.equal(ours, theirs)


def test_only_fp32_is_prepared():
    model = tiny_model("llama").to(torch.bfloat16)
    assert dict(prepare(model)) == {}
