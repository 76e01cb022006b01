from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from kev_engine.errors import ModelUnsupported
from kev_engine.models.probe import attention_facts
from tests.models.tiny import tiny_model


def build(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    common = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, name)(**{**common, **settings})
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def test_grouped_heads_and_windows_are_seen() -> None:
    facts = attention_facts(tiny_model("gemma3"), 2)
    assert (facts.num_heads, facts.num_kv_heads, facts.head_dim, facts.windows) == (4, 2, 8, (8, None))


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model("llama", attn_implementation="sdpa")
    ids = torch.arange(3, 20)[None]
    before = model(ids).logits
    attention_facts(model, 2)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(ids).logits, before)


def test_keys_and_values_of_different_widths_are_refused() -> None:
    model = build(
        "DeepseekV3Config", num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4,
        qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        moe_intermediate_size=16, intermediate_size=32, first_k_dense_replace=2,
    )
    with pytest.raises(ModelUnsupported, match="keys of 12 and values of 8"):
        attention_facts(model, 2)


def test_layers_that_never_reach_the_attention_are_refused() -> None:
    model = tiny_model("llama")
    with pytest.raises(ModelUnsupported, match="of its 3 layers 2 attend"):
        attention_facts(model, 3)


def test_layers_of_one_model_must_have_one_shape() -> None:
    model = tiny_model("llama")
    attention = model.model.layers[1].self_attn
    attention.k_proj.weight = torch.nn.Parameter(attention.k_proj.weight[:8], requires_grad=False)
    attention.v_proj.weight = torch.nn.Parameter(attention.v_proj.weight[:8], requires_grad=False)
    with pytest.raises(ModelUnsupported, match="different sizes"):
        attention_facts(model, 2)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_keyword_no_backend_knows_is_refused(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(family)
    layer = model.model.layers[0].self_attn
    usual = layer.forward
    monkeypatch.setattr(layer, "forward", lambda *args, **kwargs: usual(*args, position_bias=1.0, **kwargs))
    with pytest.raises(ModelUnsupported, match="position_bias"):
        attention_facts(model, 2)


def test_attention_that_is_not_causal_is_refused() -> None:
    model = tiny_model("llama")
    model.model.layers[1].self_attn.is_causal = False
    with pytest.raises(ModelUnsupported, match="not causal"):
        attention_facts(model, 2)
