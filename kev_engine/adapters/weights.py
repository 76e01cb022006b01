"""AdapterWeights: a LoRA adapter read from disk, checked against the model it is for, kept in fp32 on the CPU.

    read(path, model, name) -> AdapterWeights

What cannot be applied exactly, token by token, is refused with the reason; nothing is read but JSON and safetensors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from kev_engine.adapters.files import MAX_WEIGHTS_BYTES, read_files
from kev_engine.adapters.settings import LoraSettings, features, parse
from kev_engine.errors import AdapterRefused

PREFIX = "base_model.model."
KEY = re.compile(r"(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
COPY = re.compile(r"(?P<module>.+?)(\.base_layer)?\.weight")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True, eq=False)
class LoraPair:
    """What one module gets: `b @ (a @ x) * scale`, with a `[r, in]` and b `[out, r]` in fp32 on the CPU."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float
    alpha: float

    @property
    def rank(self) -> int:
        return int(self.a.shape[0])

    @property
    def num_bytes(self) -> int:
        return self.a.nbytes + self.b.nbytes


@dataclass(frozen=True, eq=False)
class AdapterWeights:
    """One version of an adapter: `version` is the SHA-256 of its configuration (canonical JSON) and weights file.

    `pairs` maps module names of the model to what they get; `untouched` are modules the configuration targets but the
    file has nothing for, which therefore stay as in the base. `dtype` is the file's, `base` what it was trained on.
    """

    version: str
    pairs: Mapping[str, LoraPair]
    untouched: tuple[str, ...]
    dtype: str
    base: str | None

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The distinct ranks, ascending."""
        return tuple(sorted({pair.rank for pair in self.pairs.values()}))

    @cached_property
    def alphas(self) -> tuple[float, ...]:
        return tuple(sorted({pair.alpha for pair in self.pairs.values()}))

    @cached_property
    def scales(self) -> tuple[float, ...]:
        return tuple(sorted({pair.scale for pair in self.pairs.values()}))

    @cached_property
    def num_bytes(self) -> int:
        return sum(pair.num_bytes for pair in self.pairs.values())


def read(path: str | Path, model: nn.Module, name: str, max_bytes: int = MAX_WEIGHTS_BYTES) -> AdapterWeights:
    """The adapter in a PEFT folder or a `.zip` of one, for this model. Raises AdapterRefused with the exact reason."""
    files = read_files(Path(path), name, max_bytes)
    settings = parse(files.config, name)
    targets = settings.targets(model, name)
    tensors = _tensors(files.weights, name)
    halves = _halves(tensors, model, name)
    pairs = {module: _pair(module, ab, model, targets, settings, name) for module, ab in halves.items()}
    digest = hashlib.sha256(len(settings.canonical).to_bytes(8, "big") + settings.canonical)
    digest.update(files.weights)
    return AdapterWeights(
        version=digest.hexdigest(),
        pairs=pairs,
        untouched=tuple(module for module in targets if module not in pairs),
        dtype=", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()})),
        base=settings.base,
    )


def _tensors(raw: bytes, name: str) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(raw)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise AdapterRefused(name, f"its weights are not a whole safetensors file ({error})") from error
    if not tensors:
        raise AdapterRefused(name, "its weights file holds no tensors")
    for key, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise AdapterRefused(name, f"{key} is {tensor.dtype}, not a 16-, 32- or 64-bit float")
    return tensors


def _halves(tensors: Mapping[str, torch.Tensor], model: nn.Module, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """module -> {"A": …, "B": …}; keys that are neither are refused, but for exact copies of the base's own weights."""
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        found = KEY.fullmatch(key.removeprefix(PREFIX))
        if found is not None:
            if found["half"] in halves.get(found["module"], {}):
                raise AdapterRefused(name, f"its weights file has {found['module']}.lora_{found['half']} twice")
            halves.setdefault(found["module"], {})[found["half"]] = tensor
        elif "lora_embedding_" in key:
            raise AdapterRefused(name, f"{key} adapts an embedding; only Linear modules can be adapted per token")
        elif not _is_copy_of_base(key.removeprefix(PREFIX), tensor, model, name):
            raise AdapterRefused(name, f"{key} matches no module of this model")
    if not halves:
        raise AdapterRefused(name, "its weights file holds no lora_A and lora_B")
    return halves


def _is_copy_of_base(key: str, tensor: torch.Tensor, model: nn.Module, name: str) -> bool:
    """True for the embedding weights that PEFT stores beside an adapted lm_head, if they are the base's own."""
    found = COPY.fullmatch(key)
    if found is None:
        return False
    try:
        own = model.get_parameter(f"{found['module']}.weight").detach()
    except AttributeError:
        return False
    if own.shape != tensor.shape or not torch.equal(own.cpu().to(tensor.dtype), tensor):
        raise AdapterRefused(
            name, f"{key} is its own copy of a base weight and differs from this model's; save the adapter with "
            "save_embedding_layers=False if it does not need it"
        )
    return True


def _pair(
    module: str, ab: Mapping[str, torch.Tensor], model: nn.Module, targets: Mapping[str, nn.Module],
    settings: LoraSettings, name: str,
) -> LoraPair:
    if module not in targets:
        known = any(key == module for key, _ in model.named_modules())
        raise AdapterRefused(name, f"{module} has weights, but " + (
            "its configuration does not target it" if known else f"is no module of this model{settings.trained_on}"
        ))
    for half in "AB":
        if half not in ab:
            raise AdapterRefused(name, f"{module} has lora_{'BA'[half == 'B']} but no lora_{half}")
    shape = features(targets[module])
    if shape is None:
        kind = type(targets[module]).__name__
        raise AdapterRefused(name, f"{module} is a {kind}; only Linear modules can be adapted per token")
    inputs, outputs = shape
    rank = settings.rank(module)
    for half, wanted in (("A", (rank, inputs)), ("B", (outputs, rank))):
        given = tuple(ab[half].shape)
        axis = 0 if half == "A" else 1
        if len(given) == 2 and given[axis] != rank and given[1 - axis] == wanted[1 - axis]:
            raise AdapterRefused(
                name, f"{module}.lora_{half} has rank {given[axis]} but its configuration says {rank}"
            )
        if given != wanted:
            raise AdapterRefused(
                name, f"{module}.lora_{half} has shape {list(given)} but this model needs {list(wanted)}"
                f"{settings.trained_on}"
            )
    scale, alpha = settings.scale(module), settings.alpha(module)
    halves = [ab[half].to(torch.float32, copy=True).contiguous() for half in "AB"]
    for half, tensor in zip("AB", halves, strict=True):
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterRefused(name, f"{module}.lora_{half} holds numbers that are not finite")
    if not bool(torch.isfinite(halves[1].mul(scale)).all()):
        raise AdapterRefused(name, f"{module}.lora_B times its scale of {scale:g} is not finite")
    return LoraPair(halves[0], halves[1], scale, alpha)
