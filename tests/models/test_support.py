from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kev_engine.models.support import FAMILIES, Family, models_page, refusal
from tests.models.tiny import FAMILIES as TINY
from tests.models.tiny import NEEDY_FAMILIES, tiny_config

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
# What a real model of these types sets and the type's default configuration does not.
TELLING: dict[str, dict[str, Any]] = {
    "phi3": {"rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 48, "long_factor": [2.0] * 48,
        "original_max_position_embeddings": 4096,
    }, "max_position_embeddings": 131072},
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
}


def default_config(model_type: str, **changes: Any) -> PreTrainedConfig:
    config: PreTrainedConfig = CONFIG_MAPPING[model_type](**changes)
    return config


@pytest.mark.parametrize("family", [*TINY, *NEEDY_FAMILIES])
def test_every_tiny_family_is_packable(family: str) -> None:
    assert refusal(tiny_config(family)) is None


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_table_says_what_the_code_says(family: Family) -> None:
    for model_type in family.model_types:
        changes = TELLING.get(model_type, {}) if family.why is not None else {}
        reason = refusal(default_config(model_type, **changes))
        assert (reason is None) == (family.why is None), (model_type, reason)


@pytest.mark.parametrize(("model_type", "changes", "words"), [
    ("qwen3_next", {}, "recurrent or state-space"),
    ("mamba", {}, "recurrent or state-space"),
    ("jamba", {}, "recurrent or state-space"),
    ("llama4_text", {}, "chunked attention"),
    ("lfm2", TELLING["lfm2"], "conv"),
    ("deepseek_v32", {}, "indexed_attention"),
    ("phi3", TELLING["phi3"], "'longrope'"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "'dynamic'"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "bidirectional"),
    ("bert", {}, "bidirectional"),
    ("bart", {}, "encoder-decoder"),
    ("bloom", {}, "cannot be replaced"),
    ("vit", {}, "no causal language model"),
    ("llava", {}, "multimodal"),
    ("gemma3n_text", {}, "reuse the keys"),
    ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised (gptq)"),
])
def test_a_refusal_names_the_type_and_the_reason(model_type: str, changes: dict[str, Any], words: str) -> None:
    reason = refusal(default_config(model_type, **changes))
    assert reason is not None
    assert words in reason
    assert repr(model_type) in reason
    assert reason.endswith(".")
    assert "\n" not in reason


@pytest.mark.parametrize("rope", [
    {"rope_type": "default", "rope_theta": 1e4},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 128},
    {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128},
], ids=lambda rope: rope["rope_type"])
def test_rope_of_a_tokens_own_position_is_packable(rope: dict[str, Any]) -> None:
    assert refusal(tiny_config("llama", rope_parameters=rope)) is None


def test_rope_is_looked_at_per_layer_type() -> None:
    """One group of layers with changing angles is enough to refuse."""
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "dynamic", "rope_theta": 1e6, "factor": 2.0},
    }
    assert "'dynamic'" in (refusal(tiny_config("gemma3", rope_parameters=rope)) or "")


def test_a_configuration_from_disk_is_judged_alike(tmp_path: Path) -> None:
    default_config("qwen3_next").save_pretrained(tmp_path)
    assert refusal(AutoConfig.from_pretrained(tmp_path)) is not None


def test_the_page_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == models_page(), (
        "docs/models.md is old: python -m kev_engine.models.support > docs/models.md"
    )
