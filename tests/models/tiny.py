"""Tiny random models of each family and a byte-level tokenizer, for tests. Seeded: equal calls give equal weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

VOCAB_SIZE = 320
WINDOW = 8
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    # Wide enough that logits differ clearly between tokens; the default 0.02 makes every answer a near tie.
    "initializer_range": 0.25, "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": True,
}
_MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ALTERNATE: dict[str, Any] = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

# family -> (configuration class, what it sets beside _COMMON)
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {}),
    "qwen3_moe": ("Qwen3MoeConfig", _MOE),
    "glm": ("GlmConfig", {}),
    "glm4": ("Glm4Config", {}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
    "gemma3": ("Gemma3TextConfig", {**_ALTERNATE, "query_pre_attn_scalar": 8}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0]}),
    "phi3": ("Phi3Config", {}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.35, "residual_multiplier": 0.5}),
    "cohere2": ("Cohere2Config", {**_ALTERNATE, "logit_scale": 1.0}),
}
NEEDY: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("Gemma2Config", {**_ALTERNATE, "query_pre_attn_scalar": 8}),
    "gpt_oss": ("GptOssConfig", {
        **_ALTERNATE, "num_local_experts": 4, "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }),
}
FAMILIES = tuple(PLAIN)
"""Families that every backend runs."""
NEEDY_FAMILIES = tuple(NEEDY)
"""Families whose attention has a softcap or sinks, which a backend must say it does."""


def tiny_config(family: str, **changes: Any) -> PreTrainedConfig:
    """A two-layer configuration of the family, `changes` applied last."""
    name, extra = {**PLAIN, **NEEDY}[family]
    config: PreTrainedConfig = getattr(transformers, name)(**{**_COMMON, **extra, **changes})
    return config


def tiny_model(family: str, attn_implementation: str = "eager", seed: int = 0, **changes: Any) -> PreTrainedModel:
    """The family's causal language model with seeded random fp32 weights, in eval mode, without gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = tiny_config(family, **changes)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attn_implementation, dtype=torch.float32)
    return model.eval().requires_grad_(False)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few dozen merges, three special tokens (ids 0 to 2) and a ChatML-like template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(text, normalized=False, special=True) for text in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1, show_progress=False,
    )
    words = "the quick brown fox jumps over the lazy dog and then the other dog answers user assistant system"
    tokenizer.train_from_iterator([words], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_folder(path: Path, family: str = "llama", **changes: Any) -> Path:
    """`path`, filled with a tiny model and tokenizer as `save_pretrained` writes them."""
    tiny_model(family, **changes).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def tiny_adapter(path: Path, seed: int, family: str = "llama", **changes: Any) -> Path:
    """`path`, filled with a LoRA adapter for the family's tiny model that changes every answer. Seeded."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, module in tiny_model(family, **changes).named_modules():
        if name.endswith(("q_proj", "v_proj")):
            for half, shape in (("A", (4, module.in_features)), ("B", (module.out_features, 4))):
                key = f"base_model.model.{name}.lora_{half}.weight"
                tensors[key] = torch.randn(shape, generator=generator) * 0.4
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    (path / "adapter_config.json").write_text(json.dumps(config))
    return path
