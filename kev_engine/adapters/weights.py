"""AdapterWeights: a LoRA adapter read from disk, checked against the model it is for, kept in fp32 on the CPU.

    read(path, model, name) -> AdapterWeights

What cannot be applied exactly, token by token, is refused with the reason; nothing is read but JSON and safetensors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from kev_engine.adapters.files import MAX_WEIGHTS_BYTES, AdapterFiles, read_files
from kev_engine.adapters.reasons import refusal
from kev_engine.adapters.settings import LoraSettings, computed_in, embedding_features, features, parse
from kev_engine.native.groups import Groups
from kev_engine.native.kernels import GROUP

PREFIX = "base_model.model."
KEY = re.compile(r"(?P<module>.+)\.lora_((?P<half>[AB])\.weight|embedding_(?P<row_half>[AB]))")
COPY = re.compile(r"(?P<module>.+?)(\.base_layer)?\.weight")
ROUNDING = 0.51
"""How far, in steps, a number may lie from what it was rounded to."""
FLAWS = {
    "scale": "its scale is 0", "b": "all its B matrices are zero, as before training",
    "zero": "in every module its A, its B or its scale is zero",
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True, eq=False)
class LoraPair:
    """What one module gets: `b @ (a @ x) * scale`, with a `[r, in]` and b `[out, r]` in fp32 on the CPU, in pinned
    memory where the model is on CUDA.

    For an embedding, x is the one-hot row of a token: a is `[r, vocabulary]` and one column of it is looked up.
    """

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

    @property
    def is_zero(self) -> bool:
        return self.scale == 0 or not bool(self.a.any()) or not bool(self.b.any())


@dataclass(frozen=True, eq=False)
class AdapterWeights:
    """One version of an adapter: `version` is the SHA-256 of its configuration (canonical JSON) and weights file.

    `pairs` maps module names of the model to what they get; `untouched` are modules the configuration targets but the
    file has nothing for, which therefore stay as in the base. `dtype` is the file's, `base_dtype` the model's, `base`
    what it was trained on.
    """

    version: str
    pairs: Mapping[str, LoraPair]
    untouched: tuple[str, ...]
    dtype: str
    base_dtype: str
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

    @cached_property
    def flaw(self) -> str | None:
        """Why it changes nothing at all: a key of FLAWS, or None."""
        if all(pair.scale == 0 for pair in self.pairs.values()):
            return "scale"
        if all(not bool(pair.b.any()) for pair in self.pairs.values()):
            return "b"
        return "zero" if all(pair.is_zero for pair in self.pairs.values()) else None


def read(path: str | Path, model: nn.Module, name: str, max_bytes: int = MAX_WEIGHTS_BYTES) -> AdapterWeights:
    """The adapter in a PEFT folder or a `.zip` of one, for this model. Raises AdapterRefused with the exact reason."""
    return check(read_files(Path(path), name, max_bytes), model, name)


def check(files: AdapterFiles, model: nn.Module, name: str) -> AdapterWeights:
    """The adapter in these files, for this model. Raises AdapterRefused with the exact reason."""
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
        dtype=_names_of({tensor.dtype for tensor in tensors.values()}),
        base_dtype=_names_of({_dtype(targets[module]) for module in pairs}),
        base=settings.base,
    )


def _tensors(raw: bytes, name: str) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(raw)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise refusal(name, "not_safetensors", error=error) from error
    if not tensors:
        raise refusal(name, "no_tensors")
    for key, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise refusal(name, "wrong_dtype", key=key, dtype=tensor.dtype)
    return tensors


def _halves(tensors: Mapping[str, torch.Tensor], model: nn.Module, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """module -> {"A": …, "B": …}; keys that are neither are refused, but for exact copies of the base's own weights."""
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        found = KEY.fullmatch(key.removeprefix(PREFIX))
        if found is not None:
            module, half = found["module"], found["half"] or found["row_half"]
            is_row, is_embedding = found["half"] is None, isinstance(_module(model, module), nn.Embedding)
            if is_row and not is_embedding:
                raise refusal(name, "row_half", key=key)
            if is_embedding and not is_row:
                raise refusal(name, "column_half", key=key)
            if half in halves.get(module, {}):
                raise refusal(name, "twice", key=f"{module}.lora_{half}")
            halves.setdefault(module, {})[half] = tensor
        elif not _is_copy_of_base(key.removeprefix(PREFIX), tensor, model, name):
            raise refusal(name, "stray_key", key=key)
    if not halves:
        raise refusal(name, "no_lora")
    return halves


def _is_copy_of_base(key: str, tensor: torch.Tensor, model: nn.Module, name: str) -> bool:
    """True for the embedding weights that PEFT stores beside an adapted lm_head, if they are the base's own."""
    found = COPY.fullmatch(key)
    if found is None:
        return False
    module = _module(model, found["module"])
    own = getattr(module, "weight", None)
    if module is None or not isinstance(own, torch.Tensor):
        return False
    if own.shape != tensor.shape or not _is_own(module, own.detach(), tensor):
        raise refusal(name, "own_copy", key=key)
    return True


def _is_own(module: nn.Module, own: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether the tensor is the module's weight; for one in int8, whether it is within the rounding of it."""
    groups: Groups | None = getattr(module, "groups", None)
    if groups is None:
        return torch.equal(own.cpu().to(tensor.dtype), tensor)
    off = (groups.weight(own).cpu().float() - tensor.float()).abs()
    steps = groups.scale.cpu().float().repeat_interleave(GROUP, 1)[:, : own.shape[1]]
    return bool((off <= steps * ROUNDING + torch.finfo(tensor.dtype).eps * tensor.float().abs()).all())


def _pair(
    module: str, ab: Mapping[str, torch.Tensor], model: nn.Module, targets: Mapping[str, nn.Module],
    settings: LoraSettings, name: str,
) -> LoraPair:
    if module not in targets:
        if _module(model, module) is not None:
            raise refusal(name, "not_targeted", module=module)
        raise refusal(name, "no_module", settings.base, module=module)
    for half, other in ("AB", "BA"):
        if half not in ab:
            raise refusal(name, "half_missing", module=module, given=f"lora_{other}", missing=f"lora_{half}")
    shape = features(targets[module]) or embedding_features(targets[module])
    if shape is None:
        raise refusal(name, "not_linear", module=module, type=type(targets[module]).__name__)
    inputs, outputs = shape
    rank = settings.rank(module)
    for half, wanted in (("A", (rank, inputs)), ("B", (outputs, rank))):
        given, key = tuple(ab[half].shape), f"{module}.lora_{half}"
        axis = 0 if half == "A" else 1
        if len(given) == 2 and given[axis] != rank and given[1 - axis] == wanted[1 - axis]:
            raise refusal(name, "rank_differs", key=key, given=given[axis], rank=rank)
        if given != wanted:
            raise refusal(name, "shape", settings.base, key=key, given=list(given), wanted=list(wanted))
    scale, alpha = settings.scale(module), settings.alpha(module)
    halves = [ab[half].to(torch.float32, copy=True).contiguous() for half in "AB"]
    # A scaled embedding (Gemma) scales what PEFT adds to it too.
    halves[1].mul_(float(getattr(targets[module], "embed_scale", 1)))
    for half, tensor in zip("AB", halves, strict=True):
        if not bool(torch.isfinite(tensor).all()):
            raise refusal(name, "not_finite", key=f"{module}.lora_{half}")
    dtype = _dtype(targets[module])
    for key, tensor in ((f"{module}.lora_A", halves[0]), (f"{module}.lora_B times its scale", halves[1].mul(scale))):
        if not bool(torch.isfinite(tensor.to(dtype)).all()):
            raise refusal(name, "overflow", key=key, scale=f"{scale:g}", dtype=_names_of({dtype}))
    if next(targets[module].parameters()).is_cuda:
        halves = [half.pin_memory() for half in halves]
    return LoraPair(halves[0], halves[1], scale, alpha)


def _module(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _dtype(module: nn.Module) -> torch.dtype:
    return computed_in(module).dtype


def _names_of(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
