"""What this machine gives: the device, the dtype, the backend and the number of KV blocks, each with its reason."""

from __future__ import annotations

from pathlib import Path

import torch

from kev_engine.attention.base import AttentionBackend, backends
from kev_engine.cache.storage import KVShape
from kev_engine.errors import InvalidField, ModelUnsupported, NotEnoughSpace
from kev_engine.models.memory import available_bytes
from kev_engine.native.kernels import Kernels, NoKernels, load_kernels

INT8 = "int8"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WEIGHT_DTYPES = (*DTYPES, INT8)
KV_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}
"""What keys and values of any model can be kept in; float16, which may overflow, only those of a float16 model."""
KERNELS = ("auto", "native", "torch")
BLOCK_SIZE = 16
"""Tokens in a KV block where neither the caller nor the backend demands more."""
KV_SHARE = 0.25
"""Share of the free memory that keys and values may take when no budget is given; the rest is for activations."""
KV_CEILING_BYTES = 4 << 30
"""More than this is only taken when asked for."""


def pick_device(name: str) -> torch.device:
    """The device that was asked for; "auto" is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidField("device", name, "it must be auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidField("device", name, "no CUDA device is here; use auto or cpu")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """What a model of this dtype computes in: itself, and with int8 weights what the device is fast at."""
    if name not in WEIGHT_DTYPES:
        raise InvalidField("dtype", name, f"it must be one of {', '.join(WEIGHT_DTYPES)}")
    return DTYPES[name] if name != INT8 else torch.bfloat16 if device.type == "cuda" else torch.float32


def pick_kv_dtype(name: str | None, dtype: str, device: torch.device) -> torch.dtype:
    """What keys and values are kept in: what was asked for, else what the model computes in."""
    computed = pick_dtype(dtype, device)
    allowed = KV_DTYPES if dtype == INT8 else {**KV_DTYPES, dtype: computed}
    if name is None:
        return computed
    if name not in allowed:
        raise InvalidField("kv_dtype", name, f"with dtype {dtype} it must be one of {', '.join(allowed)}")
    return allowed[name]


def pick_kernels(name: str, home: Path, device: torch.device, dtype: torch.dtype) -> tuple[Kernels | None, str]:
    """The compiled kernels, or None for torch's own, and one sentence that says why.

    Raises InvalidField for an unknown name, and where the kernels were asked for by name and cannot be used.
    """
    if name not in KERNELS:
        raise InvalidField("kernels", name, f"it must be one of {', '.join(KERNELS)}")
    if name == "torch":
        return None, "torch was asked for."
    try:
        if device.type != "cpu" or dtype != torch.float32:
            raise NoKernels("they compute in float32 on the CPU only")
        return load_kernels(home), "native, compiled on this machine."
    except NoKernels as reason:
        if name == "native":
            raise InvalidField("kernels", name, f"they cannot be used: {reason}; leave it at auto") from reason
        return None, f"torch, because the native kernels cannot be used: {reason}."


def pick_backend(
    name: str | None, needs: frozenset[str], device: torch.device, shape: KVShape, kernels: Kernels | None = None
) -> tuple[AttentionBackend, str]:
    """The backend and one sentence that says why it was taken.

    Raises InvalidField for an unknown name and ModelUnsupported where no backend, or not the one that was named,
    computes what the model needs.
    """
    known = backends(kernels)
    if name is not None:
        if name not in known:
            raise InvalidField("backend", name, f"it must be one of {', '.join(known)}")
        refusal = known[name].unsupported(needs, device, shape)
        if refusal is not None:
            raise ModelUnsupported(f"{refusal}; leave the backend open and one that does is chosen.")
        return known[name], f"{name} was asked for."
    refusals: list[str] = []
    for backend in known.values():
        refusal = backend.unsupported(needs, device, shape)
        if refusal is None:
            why = f", because {' and '.join(refusals)}" if refusals else f", the default on {device.type}"
            return backend, f"{backend.name}{why}."
        refusals.append(refusal)
    raise ModelUnsupported(f"no backend can serve this model: {'; '.join(refusals)}.")


def pick_block_size(given: int | None, backend: AttentionBackend) -> int:
    """Tokens in a block: what was asked for, else 16 or the next size above that the backend's pages allow.

    Raises InvalidField for a size the backend cannot read.
    """
    page = backend.page_tokens
    if given is None:
        return -(-BLOCK_SIZE // page) * page
    if given % page:
        raise InvalidField(
            "block_size", given,
            f"backend {backend.name!r} reads pages of a multiple of {page}; leave it open or name another backend",
        )
    return given


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_bytes() or KV_CEILING_BYTES


def num_blocks(budget_bytes: int | None, bytes_per_block: int, device: torch.device) -> int:
    """Blocks that the KV budget holds, the zero block included; without a budget, a share of the free memory."""
    if budget_bytes is None:
        budget_bytes = min(int(free_bytes(device) * KV_SHARE), KV_CEILING_BYTES)
    usable = budget_bytes // bytes_per_block
    if usable < 1:
        raise NotEnoughSpace("one KV block", bytes_per_block, budget_bytes, "raise the KV budget (--kv-budget)")
    return usable + 1
