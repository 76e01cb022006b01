"""A fused layer: in two calls wherever it can, by its parts wherever somebody else must be served, with equal bits."""

import pytest
import torch

from kev_engine.models.fused import FusedLayer
from kev_engine.models.int8 import use_int8
from kev_engine.models.prepare import prepare
from kev_engine.native.layers import LayerKernel
from tests.models.tiny import tiny_model

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")


def layers(model) -> list[FusedLayer]:
    found = [module.forward for module in model.modules() if isinstance(module.forward, FusedLayer)]
    assert len(found) == 2
    return found


def logits(model, count=9):
    with torch.inference_mode():
        return model(torch.arange(3, 3 + count)[None], use_cache=False).logits


def by_parts(model, count=9):
    """The logits where every layer calls its parts."""
    mine = layers(model)
    kernels = mine[0].kernels
    for layer in mine:
        layer.kernels = None
    found = logits(model, count)
    for layer in mine:
        layer.kernels = kernels
    return found


@pytest.fixture
def calls(monkeypatch):
    """How often a layer was entered in one call."""
    seen: list[int] = []
    enter = LayerKernel.enter

    def counted(self, x, *rest):
        seen.append(len(x))
        return enter(self, x, *rest)

    monkeypatch.setattr(LayerKernel, "enter", counted)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_int8", [False, True])
def test_two_calls_and_the_parts_give_the_same_bits(kernels, calls, family, is_int8):
    model = tiny_model(family, "sdpa")
    assert prepare(model, kernels)["FusedLayer"] == 2
    if is_int8:  # after the proof, whose weights were others
        before = logits(model)
        use_int8(model, kernels)
        assert not torch.equal(logits(model), before)
    for count in (1, 9, 40):
        calls.clear()
        found = logits(model, count)
        assert calls == ([count] * 2 if count <= kernels.most_rows else [])
        calls.clear()
        assert torch.equal(by_parts(model, count), found)
        assert calls == []


@pytest.mark.parametrize("product", ["self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_on_a_product_is_served(kernels, calls, product, register):
    model = tiny_model("llama", "sdpa")
    prepare(model, kernels)
    right, seen = logits(model), []
    calls.clear()
    handle = getattr(model.get_submodule(f"model.layers.1.{product}"), register)(lambda *given: seen.append(given))
    assert torch.equal(logits(model), right)
    assert (len(seen), calls) == (1, [9])  # the layer beside it is still entered in one call
    handle.remove()
    assert torch.equal(logits(model), right)
    assert (len(seen), calls) == (1, [9] * 3)


def test_without_kernels_the_parts_are_called(calls):
    model = tiny_model("llama", "sdpa")
    assert prepare(model)["FusedLayer"] == 2
    logits(model)
    assert calls == []


@pytest.mark.parametrize(("right", "wrong"), [
    ("rotate_f32(heads, cosine, sine", "rotate_f32(heads, sine, cosine"),
    ("theirs, mixed + r * l->out.k, h", "theirs, x, h"), ("        add(h, to, some * l->size);\n", ""),
    ("norm_f32(h, l->norm_out", "norm_f32(x, l->norm_out"),
])
def test_a_layer_that_is_wrong_is_not_used(compiled_from, right, wrong):
    """The kernels themselves are right, so they load; the proof of the layer sees that what they make is wrong."""
    broken = compiled_from("layer.c", right, wrong)
    model = tiny_model("llama", "sdpa")
    right_logits = logits(model)
    done = prepare(model, broken)
    assert (done["FusedLayer"], done["FusedAttention"]) == (0, 2)
    assert (logits(model) - right_logits).abs().max() <= 1e-5 * right_logits.abs().max()
