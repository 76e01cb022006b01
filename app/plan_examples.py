"""Examples that fill the planner with cases worth seeing; `key` names each in the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping

from app.planner import PlanForm

_BIG = {"model_type": "llama", "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072,
        "dtype": "bfloat16"}
_SMALL = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
          "hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
          "dtype": "float16"}
_WINDOWS = {"model_type": "gemma3_text", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 256, "hidden_size": 3840, "intermediate_size": 15360, "sliding_window": 1024,
            "vocab_size": 262208, "max_position_embeddings": 131072, "dtype": "bfloat16"}
_LATENT = {"model_type": "deepseek_v3"}


def plan_examples(loaded: str) -> Mapping[str, PlanForm]:
    """The examples by key; the first one is the model that is loaded."""
    return {
        "memory.example.loaded": PlanForm(model=loaded, device="8 GiB"),
        "memory.example.gqa": _pasted(_BIG, "160 GB"),
        "memory.example.mha": _pasted({**_BIG, "num_key_value_heads": 64}, "160 GB"),
        "memory.example.seven": _pasted(_SMALL, "24 GiB", context="4096"),
        "memory.example.window": _pasted(_WINDOWS, "80 GB", context="32768"),
        "memory.example.mla": _pasted(_LATENT, "80 GB"),
    }


def _pasted(config: Mapping[str, object], device: str, context: str = "8192") -> PlanForm:
    return PlanForm(config=json.dumps(config, indent=1), device=device, context=context)
