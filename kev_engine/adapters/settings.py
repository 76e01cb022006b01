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
import torch
from torch import nn

from kev_engine.adapters.reasons import refusal
from kev_engine.errors import AdapterRefused, shorten
from kev_engine.native.groups import Groups

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
REFUSED = frozenset({
    "use_dora", "modules_to_save", "lora_bias", "alora_invocation_tokens", "target_parameters", "layer_replication",
    "trainable_token_indices", "use_qalora", "megatron_config", "ensure_weight_tying",
})
"""Each has a reason of its own, under its name."""
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
            raise refusal(name, "slow_regex") from None
        if not found:
            raise refusal(name, "nothing_matches", self.base, value=shorten(self.target_modules))
        return found

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


def computed_in(module: nn.Module) -> torch.Tensor:
    """A tensor of the module, of the device and the dtype in which it computes."""
    groups: Groups | None = getattr(module, "groups", None)  # of a weight in int8
    return next(module.parameters()) if groups is None else groups.scale


def embedding_features(module: nn.Module) -> tuple[int, int] | None:
    """The vocabulary of an embedding and how many numbers it gives for a token, or None for any other module."""
    return (module.num_embeddings, module.embedding_dim) if isinstance(module, nn.Embedding) else None


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
        raise refusal(name, "method", value=shorten(kind))
    if config.get("bias", "none") != "none":
        raise refusal(name, "bias", value=shorten(config["bias"]))
    init = config.get("init_lora_weights", True)
    if not any(init is plain or (isinstance(plain, str) and init == plain) for plain in PLAIN_INITS):
        raise refusal(name, "init", value=shorten(init))
    for key, value in config.items():
        if key not in HONOURED and key not in WITHOUT_EFFECT and value not in (None, False, [], {}, ""):
            raise refusal(name, key if key in REFUSED else "unknown_key", key=repr(key), value=shorten(value))
    return _settings(_Keys(config, name))


def _settings(keys: _Keys) -> LoraSettings:
    targets = keys.names("target_modules")
    layers, pattern = keys.layers("layers_to_transform"), keys.names("layers_pattern")
    if not targets:
        raise keys.wrong("no_targets", "target_modules", targets)
    if isinstance(targets, str) and (layers or pattern):
        raise keys.wrong("layers_with_regex", "layers_to_transform" if layers else "layers_pattern")
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

    def wrong(self, kind: str, key: str, value: object = None, **facts: Any) -> AdapterRefused:
        return refusal(self.name, kind, key=key, value=shorten(value), **facts)

    def rank(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_RANK:
            raise self.wrong("wrong_rank", key, value, limit=MAX_RANK)
        return int(value)

    def number(self, key: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e30:
            raise self.wrong("wrong_number", key, value)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.config.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong("wrong_flag", key, value)
        return bool(value)

    def table(self, key: str) -> list[tuple[str, Any]]:
        value = self.config.get(key) or {}
        if not isinstance(value, dict):
            raise self.wrong("wrong_table", key, value)
        for pattern in value:
            self._check_regex(key, END.format(pattern))
        return list(value.items())

    def names(self, key: str) -> str | tuple[str, ...]:
        value = self.config.get(key) or ()
        if isinstance(value, str):
            self._check_regex(key, LAYER.format(value) if key == "layers_pattern" else value)
            return value
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
            raise self.wrong("wrong_names", key, value)
        if key == "layers_pattern":
            for pattern in value:
                self._check_regex(key, LAYER.format(pattern))
        return tuple(value)

    def layers(self, key: str) -> tuple[int, ...]:
        value = self.config.get(key)
        value = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value):
            raise self.wrong("wrong_layers", key, value)
        return tuple(value)

    def _check_regex(self, key: str, pattern: str) -> None:
        try:
            regex.compile(pattern)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            raise self.wrong("wrong_regex", key, pattern, error=error) from error


def _json(raw: bytes, name: str) -> dict[str, Any]:
    def refuse_constant(text: str) -> None:
        raise ValueError(f"{text} is no JSON number")

    try:
        config = json.loads(raw, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise refusal(name, "not_json", error=error) from error
    if not isinstance(config, dict):
        raise refusal(name, "no_object")
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
