"""Reads what memory needs to know out of a transformers configuration. Nothing of the model is loaded or run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kev_engine.errors import FootprintRefused, InvalidField
from kev_engine.models.footprint import LayerShape, ModelShape, Note
from kev_engine.models.support import causal_class, refusal

MAX_LAYERS = 512
MAX_COUNT = 16_384
"""The most of anything else that is counted; more is a slip, and building it would take minutes."""
MAX_NUMBER = 2**40
FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
COUNTS = ("num_", "n_")
"""How the names of numbers begin that say how many things there are."""
NOT_NEEDED = ("auto_map", "id2label", "label2id", "num_labels", "quantization_config", "_name_or_path")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
HIDDEN = ("hidden_size", "n_embd", "d_model")
STATE = ("state_size", "mamba_d_state", "ssm_cfg")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim")
CONTEXT = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")


def parse_config(text: str) -> dict[str, Any]:
    """The object in a pasted config.json. Raises InvalidField where it is none, naming the line."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidField("config", text[:60], f"it must be JSON ({where}: {error.msg})") from None
    except (RecursionError, ValueError):
        raise InvalidField("config", text[:60], "it must be JSON that is not nested hundreds of levels deep") from None
    if not isinstance(values, dict):
        raise InvalidField("config", values, "it must be an object, as in a config.json")
    return values


def read_shape(values: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a configuration (the content of a config.json) describes; of a multimodal one, the text part.

    The number of parameters is counted on a model without memory. Where transformers does not know the type, the
    usual names are read and the parameters stay unknown, with a note. Raises InvalidField naming the key at fault and
    FootprintRefused where keys and values are not what such a model stores.
    """
    for key, value in _whole_numbers(values):
        _check_size(key, value)
    known = {key: value for key, value in values.items() if key not in NOT_NEEDED}
    config = _known(known)
    notes = []
    if isinstance(values.get("quantization_config"), Mapping):
        notes.append(Note("quantized", (("method", str(values["quantization_config"].get("quant_method"))[:40]),)))
    if config is None:
        text = _plain(known)
        notes.append(Note("unknown_type", (("model_type", str(known.get("model_type", "—"))[:60]),)))
        layers = _layers([text] * _count(text, LAYERS, MAX_LAYERS), text)
        return ModelShape(name, layers, None, _context(text), _dtype(text), tuple(notes))
    text = config.get_text_config(decoder=True)
    _require_decoder(config, text)
    if text is not config:
        notes.append(Note("text_part"))
    _count(text, LAYERS, MAX_LAYERS)
    layers = _layers(list(text.per_layer_config), text)
    model, reason = _without_memory(text)
    if model is None:
        notes.append(Note("parameters", (("reason", reason),)))
    else:
        _require_agreement(layers, model)
    parameters = None if model is None else sum(parameter.numel() for parameter in model.parameters())
    if (why := refusal(config)) is not None:
        notes.append(Note("not_packable", (("reason", why),)))
    return ModelShape(name, layers, parameters, _context(text), _dtype(config) or _dtype(text), tuple(notes))


def _known(values: dict[str, Any]) -> Any:
    """The transformers configuration of the values, or None where transformers does not know the type."""
    from transformers import CONFIG_MAPPING

    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        return None
    try:
        return CONFIG_MAPPING[model_type].from_dict(values)
    except Exception as error:  # Each configuration class checks in its own way and raises what it likes.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        detail = (lines[-1] if lines else type(error).__name__).rstrip(".")
        raise InvalidField(
            "config", model_type, f"transformers cannot read it as such a configuration ({detail}); correct that key"
        ) from error


def _plain(values: Mapping[str, Any]) -> SimpleNamespace:
    """The values by name; those of the text part where there is one."""
    inner = values.get("text_config")
    return SimpleNamespace(**{str(key): value for key, value in (inner if isinstance(inner, dict) else values).items()})


def _require_decoder(config: Any, text: Any) -> None:
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    if config.is_encoder_decoder:
        raise FootprintRefused("encoder_decoder", "it is an encoder-decoder, which also keeps its encoder's output")
    if causal_class(text) is None:
        raise FootprintRefused("no_decoder", "transformers has no causal language model for it, so nothing is cached")
    is_masked = type(text) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(text, "is_decoder", False)
    if is_masked or getattr(text, "use_bidirectional_attention", None) is True:
        raise FootprintRefused("no_decoder", "it is an encoder, which reads everything at once and caches nothing")


def _layers(configs: Sequence[Any], text: Any) -> tuple[LayerShape, ...]:
    """One shape a layer; `configs[l]` holds what layer l may set by itself."""
    for config in configs:
        if rank := getattr(config, "kv_lora_rank", None):
            raise FootprintRefused(
                "mla", f"it uses multi-head latent attention (kv_lora_rank {rank}): a token stores one compressed "
                "vector a layer and not keys and values by head, so this formula does not hold for it", rank=rank)
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        kinds = [SLIDING if _slides(config) else FULL for config in configs]
    if len(kinds) != len(configs):
        raise InvalidField("layer_types", len(kinds), f"it must name each of the {len(configs)} layers")
    others = sorted(set(kinds) - {FULL, SLIDING, CHUNKED})
    if others or any(getattr(config, name, None) for config in configs for name in STATE):
        what = " and ".join(map(str, others)) or "state-space"
        raise FootprintRefused(
            "state", f"it has layers of type {what}, which keep a state and not keys and values a token, so this "
            "formula does not hold for it", kinds=what)
    shared = int(getattr(text, "num_kv_shared_layers", 0) or 0)
    return tuple(
        _layer(config, kind, reuses=index >= len(configs) - shared)
        for index, (config, kind) in enumerate(zip(configs, kinds, strict=True))
    )


def _layer(config: Any, kind: str, reuses: bool) -> LayerShape:
    heads = _count(config, HEADS)
    kv_heads = _kv_heads(config, heads)
    size = _first(config, HEAD_DIM)
    if size is None:
        hidden = _count(config, HIDDEN, MAX_NUMBER)
        if hidden % heads:
            raise InvalidField("hidden_size", hidden, f"without head_dim it must be a multiple of the {heads} heads")
        size = hidden // heads
    window = None
    if kind == SLIDING:
        window = _count(config, ("sliding_window",), MAX_NUMBER)
    elif kind == CHUNKED:
        window = _count(config, ("attention_chunk_size",), MAX_NUMBER)
    return LayerShape(heads, kv_heads, size, _first(config, ("v_head_dim",)) or size, window, reuses)


def _kv_heads(config: Any, heads: int) -> int:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    inner = getattr(config, "attn_config", None)
    inner = SimpleNamespace(**inner) if isinstance(inner, dict) else inner
    found = _first(config, KV_HEADS) or _first(inner, ("kv_n_heads",)) or heads
    if heads % found:
        raise InvalidField("num_key_value_heads", found, f"it must divide the {heads} attention heads")
    return found


def _slides(config: Any) -> bool:
    """Whether a layer whose type is not named has a window."""
    return bool(getattr(config, "sliding_window", None)) and getattr(config, "use_sliding_window", True) is not False


def _without_memory(text: Any) -> tuple[Any, str | None]:
    """The causal language model on the meta device, or None and why it cannot be built."""
    import torch

    try:
        with torch.device("meta"):
            return causal_class(text)(text), None
    except Exception as error:  # A model's constructor meets values here that its authors never tried.
        return None, f"{type(error).__name__}: {error}"[:160]


def _require_agreement(layers: Sequence[LayerShape], model: Any) -> None:
    """The projections of the model give keys and values of the sizes that were read, where it has such by name."""
    for name, size in (("k_proj", "key_size"), ("v_proj", "value_size")):
        built = [module.out_features for path, module in model.named_modules()
                 if path.endswith(f".{name}") and hasattr(module, "out_features")]
        if len(built) != len(layers):
            continue
        for index, (layer, features) in enumerate(zip(layers, built, strict=True)):
            read = layer.num_kv_heads * getattr(layer, size)
            if read != features:
                raise FootprintRefused(
                    "disagrees", f"by its configuration {name} of layer {index} gives {read} numbers a token and by "
                    f"its code {features}", layer=index, read=read, built=features)


def _context(text: Any) -> int | None:
    """The longest context that the configuration names, where it names one."""
    found = [getattr(text, name, None) for name in CONTEXT]
    return next((value for value in found if isinstance(value, int) and value > 0), None)


def _dtype(config: Any) -> str | None:
    """The published dtype by its short name."""
    value = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return None if value is None else str(value).removeprefix("torch.")


def _first(config: Any, names: Sequence[str]) -> int | None:
    """The first of these that is set, as a whole number of 1 or more."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidField(name, value, "it must be a whole number of 1 or more")
            return value
    return None


def _count(config: Any, names: Sequence[str], most: int = MAX_COUNT) -> int:
    """As `_first`, and it must be there."""
    found = _first(config, names)
    if found is None:
        raise InvalidField(names[0], None, "the configuration must give it")
    if found > most:
        raise InvalidField(names[0], found, f"at most {most} are read")
    return found


def _whole_numbers(values: object, key: str = "config") -> Iterator[tuple[str, int]]:
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _whole_numbers(value, str(name))
    elif isinstance(values, (list, tuple)):
        if len(values) > MAX_COUNT:
            raise InvalidField(key, f"a list of {len(values)}", f"at most {MAX_COUNT} entries are read")
        for value in values:
            yield from _whole_numbers(value, key)
    elif isinstance(values, int) and not isinstance(values, bool):
        yield key, values


def _check_size(key: str, value: int) -> None:
    most = MAX_NUMBER
    if key.startswith(COUNTS):
        most = MAX_LAYERS if "layer" in key else MAX_COUNT
    if abs(value) > most:
        raise InvalidField(key, value, f"at most {most} are read")
