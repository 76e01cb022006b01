"""Configurations as published: the shapes read are those that the models' own caches and weights have."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import DynamicCache

from kev_engine.errors import FootprintRefused, InvalidField
from kev_engine.models.embedded import embedded
from kev_engine.models.footprint import Footprint, ModelShape
from kev_engine.models.progress import silent
from kev_engine.models.shape import parse_config, read_shape
from tests.models.tiny import FAMILIES, NEEDY_FAMILIES, WINDOW, tiny_folder, tiny_model

LLAMA_70B = {"model_type": "llama", "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
             "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256, "dtype": "bfloat16"}


def footprint(shape: ModelShape) -> Footprint:
    return Footprint(shape, "float32", "float32", 2**40)


@pytest.mark.parametrize("family", [*FAMILIES, *NEEDY_FAMILIES])
def test_bytes_and_parameters_are_those_of_the_real_model(family: str) -> None:
    model = tiny_model(family)
    shape = read_shape(model.config.to_dict(), family)
    assert shape.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    tokens = WINDOW - 2
    cache = DynamicCache()
    with torch.inference_mode():
        model(torch.arange(3, 3 + tokens)[None], cache=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert footprint(shape).kv_bytes(tokens) == held


@pytest.mark.parametrize(("family", "windows"), [
    ("mistral", (WINDOW, WINDOW)), ("gemma3", (WINDOW, None)), ("llama", (None, None)), ("qwen2", (None, None)),
])
def test_windows_are_read_by_layer(family: str, windows: tuple[int | None, ...]) -> None:
    shape = read_shape(tiny_model(family).config.to_dict(), family)
    assert tuple(layer.window for layer in shape.layers) == windows


def test_parameters_of_saved_and_embedded_files_are_those_counted(tmp_path: Path, embedded_home: Path) -> None:
    for folder in (tiny_folder(tmp_path / "tied"), tiny_folder(tmp_path / "untied", tie_word_embeddings=False),
                   embedded(embedded_home, silent).path):
        total = 0
        for file in folder.glob("*.safetensors"):
            with safe_open(file, "pt") as tensors:
                total += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        shape = read_shape(json.loads((folder / "config.json").read_text()), folder.name)
        assert shape.num_parameters == total


def test_a_published_70b_configuration() -> None:
    shape = read_shape(LLAMA_70B, "70B")
    assert shape.num_parameters == 70_553_706_496
    assert Footprint(shape, "bfloat16", "bfloat16", 2**40).bytes_per_token == 327_680
    assert (shape.dtype, shape.max_context, shape.notes) == ("bfloat16", 2048, ())


@pytest.mark.parametrize(("values", "heads"), [
    ({"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
      "num_hidden_layers": 2}, (8, 128, 128)),
    ({"model_type": "falcon", "num_hidden_layers": 2}, (1, 64, 64)),
    ({"model_type": "falcon", "num_hidden_layers": 2, "new_decoder_architecture": True, "num_attention_heads": 8,
      "num_kv_heads": 2, "hidden_size": 512}, (2, 64, 64)),
    ({"model_type": "gpt_bigcode", "n_layer": 2}, (1, 64, 64)),
    ({"model_type": "gpt2", "n_layer": 2}, (12, 64, 64)),
    ({"model_type": "gpt_neox", "num_hidden_layers": 2}, (64, 96, 96)),
    ({"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}}, (4, 256, 256)),
])
def test_the_keys_of_other_families(values: dict[str, Any], heads: tuple[int, int, int]) -> None:
    layer = read_shape(values, "m").layers[0]
    assert (layer.num_kv_heads, layer.key_size, layer.value_size) == heads


def test_layers_of_different_sizes_and_layers_that_reuse() -> None:
    gemma4 = read_shape({"model_type": "gemma4_text"}, "m")
    assert {layer.key_size for layer in gemma4.layers} == {256, 512}
    gemma3n = read_shape({"model_type": "gemma3n_text"}, "m")
    assert [layer.reuses for layer in gemma3n.layers] == [False] * 20 + [True] * 15


@pytest.mark.parametrize(("values", "reason"), [
    ({"model_type": "deepseek_v3"}, "mla"),
    ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "kv_lora_rank": 512}, "mla"),
    ({"model_type": "mamba"}, "state"), ({"model_type": "qwen3_next"}, "state"), ({"model_type": "jamba"}, "state"),
    ({"model_type": "bert"}, "no_decoder"), ({"model_type": "t5"}, "encoder_decoder"),
    ({"model_type": "mimo_v2_flash"}, "disagrees"), ({"model_type": "vit"}, "no_decoder"),
])
def test_what_stores_something_else_is_refused_with_the_reason(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(FootprintRefused) as caught:
        read_shape(values, "m")
    assert caught.value.reason == reason
    assert str(caught.value).endswith(".")


def test_a_type_that_nobody_knows_is_read_by_its_usual_names() -> None:
    shape = read_shape({"model_type": "brand_new", "num_hidden_layers": 80, "num_attention_heads": 64,
                        "num_key_value_heads": 8, "head_dim": 128, "torch_dtype": "float16"}, "m")
    assert Footprint(shape, "float16", "float16", 1).bytes_per_token == 327_680
    assert (shape.num_parameters, shape.dtype, [note.code for note in shape.notes]) == (None, "float16",
                                                                                     ["unknown_type"])


def test_notes_say_what_a_reader_should_know() -> None:
    values = {**LLAMA_70B, "num_hidden_layers": 1, "quantization_config": {"quant_method": "awq"}}
    assert [note.code for note in read_shape(values, "m").notes] == ["quantized"]
    bloom = read_shape({"model_type": "bloom"}, "m")
    assert [note.code for note in bloom.notes] == ["not_packable"]


@pytest.mark.parametrize(("values", "field"), [
    ({}, "num_hidden_layers"),
    ({"num_hidden_layers": 2}, "num_attention_heads"),
    ({"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 64}, "hidden_size"),
    ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 3},
     "num_key_value_heads"),
    ({"num_hidden_layers": 2.5, "num_attention_heads": 4, "hidden_size": 64}, "num_hidden_layers"),
    ({"num_hidden_layers": True, "num_attention_heads": 4, "hidden_size": 64}, "num_hidden_layers"),
    ({"num_hidden_layers": 10**9, "num_attention_heads": 4, "hidden_size": 64}, "num_hidden_layers"),
    ({"num_hidden_layers": 2, "num_attention_heads": 10**9, "hidden_size": 10**9}, "num_attention_heads"),
    ({"n_layer": 10**9, "n_head": 4, "n_embd": 64}, "n_layer"),
    ({"model_type": "llama", "hidden_size": 10**15}, "hidden_size"),
    ({"model_type": "llama", "num_attention_heads": 0}, "config"),
    ({"model_type": "llama", "hidden_size": [3]}, "config"),
    ({"model_type": "llama", "dtype": "floatt"}, "config"),
    ({"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 64, "layer_types": ["full_attention"]},
     "layer_types"),
    ({"layer_types": ["full_attention"] * 20_000}, "layer_types"),
    ({"model_type": ["x"], "num_hidden_layers": 2}, "num_attention_heads"),
])
def test_a_wrong_value_is_refused_by_the_name_of_its_key(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_shape(values, "m")
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [
    ("{", "line 1, column 2"), ("[1]", "an object"), ("", "must be JSON"), ("[" * 100_000, "nested"), ("nope", "JSON"),
])
def test_a_paste_that_is_no_configuration(text: str, words: str) -> None:
    with pytest.raises(InvalidField, match=words) as caught:
        parse_config(text)
    assert caught.value.field == "config"


def test_numbers_that_would_fill_the_memory_are_left_out() -> None:
    """transformers makes a table of `num_labels` entries; the answer must not depend on it."""
    values = {**LLAMA_70B, "num_hidden_layers": 1, "num_labels": 10**9}
    with pytest.raises(InvalidField, match="num_labels"):
        read_shape(values, "m")
