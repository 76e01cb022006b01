"""Arrays from .npy, .npz, .safetensors and .pt files. Pickled objects are never loaded."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kev_engine.errors import InvalidField, UnreadableFile

ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors", ".pt")


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name (a .npy file holds one, named `attention_mask`); tensors stay tensors.

    Raises UnreadableFile.
    """
    readers = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".pt": _pt}
    if path.suffix not in readers:
        raise UnreadableFile(str(path), "its name", f"it must end in one of {', '.join(ARRAY_SUFFIXES)}, or be JSON")
    if not path.is_file():
        raise UnreadableFile(str(path), "the file", "it does not exist")
    try:
        return readers[path.suffix](path)
    except UnreadableFile:
        raise
    # A damaged file raises whatever its reader trips over; the person needs the file's name and one sentence.
    except Exception as trouble:
        reason = (str(trouble).splitlines() or [type(trouble).__name__])[0][:160]
        raise UnreadableFile(str(path), "the file", f"it cannot be read as {path.suffix} ({reason})") from trouble


def read_array(key: str, path: Path, name: object = None) -> tuple[npt.NDArray[Any], str]:
    """One array of a file and its dtype as torch names it; `name` chooses where the file holds several."""
    arrays = read_arrays(path)
    if name is None and len(arrays) != 1:
        raise InvalidField(key, str(path), f"it holds {len(arrays)} arrays, so \"key\" must name one of them")
    chosen = next(iter(arrays)) if name is None else name
    if not isinstance(chosen, str) or chosen not in arrays:
        raise InvalidField(key, name, f"the file holds {', '.join(sorted(arrays)) or 'nothing'}")
    from kev_engine.doctor.fields import plain

    value = arrays[chosen]
    dtype = str(value.dtype).removeprefix("torch.")
    array = np.asarray(plain(value))
    return array, dtype


def _npy(path: Path) -> dict[str, Any]:
    return {"attention_mask": np.load(path, mmap_mode="r", allow_pickle=False)}


def _npz(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise UnreadableFile(str(path), "the file", "it is not an .npz archive")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# What numpy has no name for is read through torch.
_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "F32": "float32", "F64": "float64",
}


def _safetensors(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 100_000_000:
            raise UnreadableFile(str(path), "the header", "it is not a safetensors file")
        header = json.loads(file.read(size))
    kinds = {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    if kinds <= set(_SAFETENSORS):
        from safetensors.numpy import load_file

        return dict(load_file(path))
    from safetensors.torch import load_file as load_tensors

    return dict(load_tensors(path))


def _pt(path: Path) -> dict[str, Any]:
    import torch

    loaded = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(loaded, torch.Tensor):
        return {"attention_mask": loaded}
    if isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded):
        return dict(loaded)
    raise UnreadableFile(str(path), "the file", "it must hold one tensor or a dictionary of named tensors")
