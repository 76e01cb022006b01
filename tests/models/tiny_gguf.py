"""A tiny Llama GGUF file with fp32 tensors and the tiny tokenizer's vocabulary, for tests."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel

from tests.models.tiny import CHAT_TEMPLATE, tiny_model, tiny_tokenizer

CONTROL, NORMAL = 3, 1


def gguf_model() -> PreTrainedModel:
    """The model whose weights `write_gguf` writes."""
    return tiny_model("llama", vocab_size=len(tiny_tokenizer()))


def write_gguf(
    path: Path, pre: str | None = "gpt-2", with_token_types: bool = True, architecture: str = "llama"
) -> Path:
    """`path`, a GGUF file; `pre` None leaves `tokenizer.ggml.pre` out, as older files do."""
    model, tokenizer = gguf_model(), tiny_tokenizer()
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)

    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(pair) for pair in backend["model"]["merges"]])
    if with_token_types:
        specials = set(tokenizer.all_special_tokens) | {"<|im_start|>"}
        writer.add_token_types([CONTROL if token in specials else NORMAL for token in tokens])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    for name, tensor in _tensors(model):
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model: PreTrainedModel) -> list[tuple[str, np.ndarray]]:
    config = model.config
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    tensors = [
        ("token_embd.weight", model.get_input_embeddings().weight.numpy()),
        ("output_norm.weight", model.model.norm.weight.numpy()),
    ]
    for index, layer in enumerate(model.model.layers):
        for ours, theirs in names.items():
            weight = layer.get_submodule(ours).weight.numpy()
            if theirs in heads:
                # The file interleaves the two halves of each head's rotary pairs.
                split = weight.reshape(heads[theirs], 2, weight.shape[0] // heads[theirs] // 2, weight.shape[1])
                weight = split.swapaxes(1, 2).reshape(weight.shape)
            tensors.append((f"blk.{index}.{theirs}.weight", weight))
    return tensors
