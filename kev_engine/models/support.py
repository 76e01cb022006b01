"""Which models can be packed: an allowlist by capability, read from the configuration before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PACKABLE_LAYERS = frozenset({"full_attention", "sliding_attention", "dense", "sparse", "moe", "mlp"})
"""Layer types that keep segments apart under a plan; dense, sparse, moe and mlp say only what follows the attention."""
PACKABLE_ROPE = frozenset({"default", "linear", "llama3", "yarn", "proportional"})
"""RoPE kinds whose angles depend on a token's own position alone."""
CHANGING_ROPE = frozenset({"dynamic", "longrope"})
WINDOW, SOFTCAP, SINKS = "window", "softcap", "sinks"


@dataclass(frozen=True)
class Family:
    """One row of docs/models.md. `why` is what `refusal` says of it, or None for a family that can be packed."""

    name: str
    model_types: tuple[str, ...]
    needs: str = ""
    why: str | None = None


def refusal(config: Any) -> str | None:
    """Why a model with this configuration cannot answer packed questions, in one sentence; None if it can.

    The layers' own behaviour is looked at again once the model is loaded (see probe.py).
    """
    text = config.get_text_config(decoder=True)
    for reason in (_class_refusal(config, text), _layer_refusal(text), _rope_refusal(text), _weight_refusal(config)):
        if reason is not None:
            return f"a model of type {config.model_type!r} cannot be packed: {reason}."
    return None


def causal_class(config: Any) -> Any:
    """transformers' causal language model class for a text configuration, or None."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    return MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)


def rope_kinds(text: Any) -> frozenset[str]:
    """The RoPE kinds of a text configuration; empty for learned or absent positions."""
    rope = getattr(text, "rope_parameters", None) or {}
    groups = [rope] if "rope_type" in rope else [group for group in rope.values() if isinstance(group, dict)]
    return frozenset(str(group.get("rope_type", "default")) for group in groups)


def _class_refusal(config: Any, text: Any) -> str | None:
    if config.is_encoder_decoder:
        return "it is an encoder-decoder, whose decoder reads an encoder's output and not a packed row"
    if text is not config and causal_class(config) is None:
        return "it is multimodal and transformers has no causal language model for its text part alone"
    model = causal_class(text)
    if model is None:
        return "transformers has no causal language model for it"
    if getattr(model, "_is_stateful", False):
        return "it has recurrent or state-space layers, which ignore masks and carry state into the next question"
    if not model._supports_attention_backend:
        return "its attention cannot be replaced, so it cannot be told which tokens may read which"
    if getattr(text, "is_decoder", None) is False or getattr(text, "use_bidirectional_attention", None):
        return "its attention is bidirectional, so a token reads tokens that come after it"
    return None


def _layer_refusal(text: Any) -> str | None:
    kinds = sorted(set(getattr(text, "layer_types", None) or ()) - PACKABLE_LAYERS)
    if "chunked_attention" in kinds or getattr(text, "attention_chunk_size", None):
        return "it has chunked attention, whose chunks are counted along the row and not along a question"
    if kinds:
        return f"its layers of type {' and '.join(kinds)} do not keep to a mask of tokens"
    if getattr(text, "cross_attention_layers", None) or getattr(text, "add_cross_attention", False):
        return "it has cross-attention layers, which read something else than the row"
    if getattr(text, "num_kv_shared_layers", 0):
        return "its last layers reuse the keys of earlier ones, which a cache of one entry a layer does not offer"
    return None


def _rope_refusal(text: Any) -> str | None:
    kinds = rope_kinds(text)
    changing = sorted(kinds & CHANGING_ROPE)
    if changing:
        return f"its RoPE is {changing[0]!r}, whose angles change with the longest question in the row"
    unknown = sorted(kinds - PACKABLE_ROPE)
    if unknown:
        return f"its RoPE is {unknown[0]!r}, which is not known to depend on a token's own position alone"
    return None


def _weight_refusal(config: Any) -> str | None:
    quantization = getattr(config, "quantization_config", None)
    if quantization is None:
        return None
    values = quantization if isinstance(quantization, dict) else vars(quantization)
    return f"its weights are stored quantised ({values.get('quant_method')}); use the version with plain weights"


FAMILIES = (
    Family("Llama 2, 3, 3.x; SmolLM2", ("llama",)),
    Family("Qwen2, Qwen2.5", ("qwen2",)),
    Family("Qwen3", ("qwen3",)),
    Family("Qwen3-MoE", ("qwen3_moe",)),
    Family("GLM-4", ("glm", "glm4")),
    Family("Mistral", ("mistral",), "window where the configuration sets one"),
    Family("Gemma-3 (text)", ("gemma3_text",), "window"),
    Family("Gemma-2", ("gemma2",), "window, softcap"),
    Family("SmolLM3", ("smollm3",)),
    Family("Phi-3, Phi-4 (4k variants)", ("phi3",), "window where the configuration sets one"),
    Family("OLMo-2", ("olmo2",)),
    Family("Granite 3", ("granite",)),
    Family("Command-R7B", ("cohere2",), "window"),
    Family("GPT-OSS", ("gpt_oss",), "window, sinks"),
    Family("Phi-3 128k", ("phi3",), why="RoPE `longrope` changes with the longest question in the row"),
    Family("Qwen3-Next, Qwen3.5", ("qwen3_next", "qwen3_5_text"), why="linear-attention layers carry state onwards"),
    Family("Mamba, Mamba-2, RWKV", ("mamba", "mamba2", "rwkv"), why="state-space layers carry state onwards"),
    Family("Jamba, Bamba, Granite-4-H", ("jamba", "bamba", "granitemoehybrid"), why="some layers carry state onwards"),
    Family("RecurrentGemma", ("recurrent_gemma",), why="recurrent layers carry state onwards"),
    Family("Llama 4", ("llama4_text",), why="chunked attention counts along the row"),
    Family("LFM2", ("lfm2",), why="convolution layers read across questions"),
    Family("DeepSeek-V3.2", ("deepseek_v32",), why="its attention chooses keys by itself"),
    Family("Gemma-3n", ("gemma3n_text",), why="layers reuse the keys of others"),
    Family("BERT and its kin", ("bert", "roberta"), why="bidirectional attention"),
    Family("BART, Whisper, T5", ("bart", "whisper", "t5"), why="encoder-decoder"),
    Family("BLOOM, MPT, Falcon", ("bloom", "mpt", "falcon"), why="attention of their own that takes no plan"),
)


def models_page() -> str:
    """docs/models.md, from `FAMILIES`."""
    lines = [
        "# Models", "",
        "A model is judged by what its layers do, not by its name: `kev_engine/models/support.py` reads the "
        "configuration before anything is loaded, `probe.py` looks at what the layers really call, and after loading "
        "an audit of two short segments runs through the chosen backend. A refusal says why.", "",
        "Where a model may come from (`--model`, `KEV_MODEL`): `embedded`, a folder, `hf:owner/name[@revision]`, "
        "`modelscope:owner/name[@revision]`, `gguf:path`. Weights are read from safetensors (or GGUF) only, and code "
        "that comes with a model is never run.", "",
        "In the page another model is chosen from the chip with the loaded one's name. Its need is compared with the "
        "free memory before anything but its configuration is fetched; Cancel ends the load at its next step, keeps "
        "files that have arrived, and the old model answers on. For that, files of Hugging Face are fetched over HTTP, "
        "never over Xet, which cannot be ended within a file.", "",
        "## Packed", "", "| family | `model_type` | a backend must do |", "|---|---|---|",
    ]
    lines += [f"| {row.name} | {_codes(row)} | {row.needs or '—'} |" for row in FAMILIES if row.why is None]
    lines += ["", "## Refused", "", "| family | `model_type` | why |", "|---|---|---|"]
    lines += [f"| {row.name} | {_codes(row)} | {row.why} |" for row in FAMILIES if row.why is not None]
    return "\n".join([*lines, ""])


def _codes(row: Family) -> str:
    return ", ".join(f"`{name}`" for name in row.model_types)


if __name__ == "__main__":
    print(models_page(), end="")
