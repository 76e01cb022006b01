"""LoraSettings: what an `adapter_config.json` says, with every key it can hold either honoured or refused.

    parse(raw, name) -> LoraSettings;  settings.targets(model, name) -> {module name: module}

Matching follows PEFT's rules (names are suffixes, a string is a regular expression over the whole module name, a
pattern's key is a regular expression over the name's end).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import regex  # type: ignore[import-untyped]
from torch import nn

from kev_engine.errors import AdapterRefused, shorten

Value = TypeVar("Value")

REGEX_SECONDS = 0.1
# One module of huge rank would widen every module's share of the bank.
MAX_RANK = 512
ALL_LINEAR = "all-linear"
END = r"(?:.*\.)?(?:{})$"
LAYER = r"(?:^|.*?\.){}\.(?P<idx>\d+)\."
ANY_LAYER = r".*?\.[^.]*\.(?P<idx>\d+)\."

HONOURED = frozenset({
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "init_lora_weights", "bias", "base_model_name_or_path",
})
# These shape training, loading or saving, never what a finished adapter adds. `fan_in_fan_out` names the storage of
# the base weight, which only merging would touch.
WITHOUT_EFFECT = frozenset({
    "auto_mapping", "corda_config", "eva_config", "fan_in_fan_out", "inference_mode", "lora_dropout", "lora_ga_config",
    "loftq_config", "megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config", "task_type",
})
REFUSED = {
    "use_dora": "it is a DoRA adapter, which rescales the base weights and cannot be added per token",
    "modules_to_save": "modules_to_save replaces whole modules of the base; train with LoRA on them instead",
    "lora_bias": "lora_bias adds a bias of its own; train with lora_bias=False",
    "alora_invocation_tokens": "it is an activated LoRA (aLoRA), which starts in the middle of a sequence",
    "target_parameters": "target_parameters adapts bare parameters, not Linear modules",
    "layer_replication": "layer_replication changes how many layers the base has",
    "trainable_token_indices": "trainable_token_indices replaces rows of the base's embedding",
    "use_qalora": "it is a QALoRA adapter, which pools its input; convert it to plain LoRA",
    "megatron_config": "megatron_config is for a model split by Megatron",
    "ensure_weight_tying": "ensure_weight_tying ties the adapter to the embedding; train without it",
}
# Initialisations that leave the base weights alone. The others (PiSSA, OLoRA, CorDA, LoRA-GA, LoftQ) train against
# changed base weights, unless they were converted when saved, which PEFT records as `true`.
PLAIN_INITS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")


@dataclass(frozen=True)
class LoraSettings:
    """Which modules an adapter targets and with what rank and scale. Names are those of `model.named_modules()`."""

    r: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    target_modules: str | tuple[str, ...]
    exclude_modules: str | tuple[str, ...]
    layers_to_transform: tuple[int, ...]
    layers_pattern: tuple[str, ...]
    base: str | None
    canonical: bytes
    """The configuration as canonical JSON, for digests."""

    def rank(self, module: str) -> int:
        return _by_pattern(self.rank_pattern, module, self.r)

    def alpha(self, module: str) -> float:
        return _by_pattern(self.alpha_pattern, module, self.lora_alpha)

    def scale(self, module: str) -> float:
        """The factor of B(A(x)): alpha / r, or alpha / sqrt(r) for rsLoRA (Kalajdzievski 2023, arXiv:2312.03732)."""
        rank = self.rank(module)
        return self.alpha(module) / (math.sqrt(rank) if self.use_rslora else rank)

    def targets(self, model: nn.Module, name: str) -> dict[str, nn.Module]:
        """The modules of `model` that this adapter is meant for, by name.

        Raises AdapterRefused where nothing matches, and for a regular expression that takes too long.
        """
        try:
            found = {key: module for key, module in model.named_modules() if key and self._matches(key, module, model)}
        except TimeoutError:
            raise AdapterRefused(name, "a regular expression in its configuration takes too long to match") from None
        if not found:
            raise AdapterRefused(
                name, f"target_modules {shorten(self.target_modules)} matches no module of this model{self.trained_on}"
            )
        return found

    @property
    def trained_on(self) -> str:
        return f"; it was trained on {shorten(self.base)}" if self.base else ""

    def _matches(self, key: str, module: nn.Module, model: nn.Module) -> bool:
        if _is_named(key, self.exclude_modules):
            return False
        if isinstance(self.target_modules, str):
            if self.target_modules.lower() == ALL_LINEAR:
                return features(module) is not None and module is not output_embedding(model)
            return _full(self.target_modules, key)
        if key in self.target_modules:
            return True
        return _is_named(key, self.target_modules) and self._in_layers(key)

    def _in_layers(self, key: str) -> bool:
        if not self.layers_to_transform:
            return True
        for pattern in [LAYER.format(pattern) for pattern in self.layers_pattern] or [ANY_LAYER]:
            found = _begin(pattern, key)
            if found is not None:
                return int(found["idx"]) in self.layers_to_transform
        return False


def features(module: nn.Module) -> tuple[int, int] | None:
    """How many numbers a Linear-like module takes and gives, or None for any other module."""
    for inputs, outputs in (("in_features", "out_features"), ("nx", "nf")):
        if isinstance(getattr(module, inputs, None), int) and isinstance(getattr(module, outputs, None), int):
            return getattr(module, inputs), getattr(module, outputs)
    return None


def output_embedding(model: nn.Module) -> nn.Module | None:
    """The module that turns hidden states into logits, or None."""
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    return head if isinstance(head, nn.Module) else None


def parse(raw: bytes, name: str) -> LoraSettings:
    """The settings in the bytes of an `adapter_config.json`; AdapterRefused says which key cannot be applied."""
    config = _json(raw, name)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise AdapterRefused(name, f"peft_type is {shorten(kind)}, and only LORA can be applied per token")
    if config.get("bias", "none") != "none":
        bias = shorten(config["bias"])
        raise AdapterRefused(name, f"bias is {bias}, which changes the base's biases; train with bias='none'")
    init = config.get("init_lora_weights", True)
    if not any(init is plain or (isinstance(plain, str) and init == plain) for plain in PLAIN_INITS):
        raise AdapterRefused(
            name, f"init_lora_weights is {shorten(init)}: it was trained against changed base weights; save it again "
            "with path_initial_model_for_weight_conversion, which makes it a plain LoRA"
        )
    for key, value in config.items():
        if key not in HONOURED and key not in WITHOUT_EFFECT and value not in (None, False, [], {}, ""):
            raise AdapterRefused(
                name, REFUSED.get(key, f"its configuration sets {key!r} to {shorten(value)}, which is not known here")
            )
    return _settings(_Keys(config, name))


def _settings(keys: _Keys) -> LoraSettings:
    targets = keys.names("target_modules")
    layers, pattern = keys.layers("layers_to_transform"), keys.names("layers_pattern")
    if not targets:
        raise keys.wrong("target_modules", "a list of module names, a regular expression or 'all-linear'")
    if isinstance(targets, str) and (layers or pattern):
        raise keys.wrong("layers_to_transform", "left out where target_modules is one string")
    base = keys.config.get("base_model_name_or_path")
    return LoraSettings(
        r=keys.rank("r", keys.config.get("r", 8)),
        lora_alpha=keys.number("lora_alpha", keys.config.get("lora_alpha", 8)),
        use_rslora=keys.flag("use_rslora"),
        rank_pattern={key: keys.rank(f"rank_pattern {key!r}", value) for key, value in keys.table("rank_pattern")},
        alpha_pattern={key: keys.number(f"alpha_pattern {key!r}", value) for key, value in keys.table("alpha_pattern")},
        target_modules=targets,
        exclude_modules=keys.names("exclude_modules"),
        layers_to_transform=layers,
        layers_pattern=(pattern,) if isinstance(pattern, str) and pattern else tuple(pattern),
        base=base if isinstance(base, str) else None,
        canonical=json.dumps(keys.config, sort_keys=True, separators=(",", ":")).encode(),
    )


class _Keys:
    """Typed reading of a configuration's keys; what has the wrong type is refused by name."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def wrong(self, key: str, wanted: str, value: object = None) -> AdapterRefused:
        return AdapterRefused(self.name, f"{key} in its configuration is {shorten(value)} but must be {wanted}")

    def rank(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_RANK:
            raise self.wrong(key, f"a whole number from 1 to {MAX_RANK}", value)
        return int(value)

    def number(self, key: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e30:
            raise self.wrong(key, "a finite number", value)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.config.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return bool(value)

    def table(self, key: str) -> list[tuple[str, Any]]:
        value = self.config.get(key) or {}
        if not isinstance(value, dict):
            raise self.wrong(key, "a table of module patterns", value)
        for pattern in value:
            self._check_regex(key, END.format(pattern))
        return list(value.items())

    def names(self, key: str) -> str | tuple[str, ...]:
        value = self.config.get(key) or ()
        if isinstance(value, str):
            self._check_regex(key, LAYER.format(value) if key == "layers_pattern" else value)
            return value
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
            raise self.wrong(key, "a list of names or one string", value)
        if key == "layers_pattern":
            for pattern in value:
                self._check_regex(key, LAYER.format(pattern))
        return tuple(value)

    def layers(self, key: str) -> tuple[int, ...]:
        value = self.config.get(key)
        value = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value):
            raise self.wrong(key, "a layer number or a list of them", value)
        return tuple(value)

    def _check_regex(self, key: str, pattern: str) -> None:
        try:
            regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            raise self.wrong(key, f"a regular expression ({error})", pattern) from error


def _json(raw: bytes, name: str) -> dict[str, Any]:
    def refuse_constant(text: str) -> None:
        raise ValueError(f"{text} is no JSON number")

    try:
        config = json.loads(raw, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AdapterRefused(name, f"adapter_config.json is not readable JSON ({error})") from error
    if not isinstance(config, dict):
        raise AdapterRefused(name, "adapter_config.json does not hold a JSON object")
    return config


def _is_named(key: str, names: str | tuple[str, ...]) -> bool:
    if isinstance(names, str):
        return bool(names) and _full(names, key)
    return any(key == name or key.endswith(f".{name}") for name in names)


def _by_pattern(patterns: Mapping[str, Value], module: str, default: Value) -> Value:
    for pattern, value in patterns.items():
        if _begin(END.format(pattern), module) is not None:
            return value
    return default


# `regex` matches as `re` does but can be stopped: an uploaded pattern must not be able to hang the engine.
def _full(pattern: str, text: str) -> bool:
    return regex.fullmatch(pattern, text, timeout=REGEX_SECONDS) is not None


def _begin(pattern: str, text: str) -> Any:
    return regex.match(pattern, text, timeout=REGEX_SECONDS)
