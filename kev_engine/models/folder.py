"""A model folder: whether it is whole, how many weights it holds, and the digest of its content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path

from kev_engine.errors import ModelIncomplete, ModelNotFound, ModelUnsupported
from kev_engine.models.store import sha256

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class ModelFiles:
    """The safetensors files of a folder and the number of weights in them."""

    weights: tuple[Path, ...]
    num_weights: int


def model_files(folder: Path) -> ModelFiles:
    """The folder's weight files, each of them whole.

    Raises ModelNotFound where there is no folder, ModelUnsupported for weights that are only pickled, and
    ModelIncomplete for anything that is missing or cut off, naming the file. Only headers are read.
    """
    if not folder.is_dir():
        raise ModelNotFound(f"there is no folder {folder}; give a model folder, or hf:owner/name to fetch one.")
    if not (folder / CONFIG).is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        way_out = f"use gguf:{ggufs[0]}" if ggufs else "point to the folder that holds it and model.safetensors"
        raise ModelIncomplete(f"{folder} has no {CONFIG}; {way_out}.")
    names = _weight_names(folder)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelIncomplete(f"{folder} has no tokenizer; copy the model's {' or '.join(TOKENIZERS)} into it.")
    paths = tuple(folder / name for name in names)
    return ModelFiles(paths, sum(_count_weights(path) for path in paths))


def folder_digest(folder: Path, files: ModelFiles) -> str:
    """The digest of configuration, tokenizer and weights by content: equal content, equal digest, wherever it lies."""
    digest = hashlib.sha256()
    small = [folder / name for name in (CONFIG, *TOKENIZERS, "chat_template.jinja", "tokenizer_config.json")]
    for path in (*small, *files.weights):
        if path.is_file():
            digest.update(f"{path.name}\0{sha256(path)}\0".encode())
    return digest.hexdigest()


def _weight_names(folder: Path) -> list[str]:
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        pickled = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickled:
            raise ModelUnsupported(pickles_only(str(folder), pickled[0]))
        raise ModelIncomplete(f"{folder} has neither {WEIGHTS} nor {INDEX}; fetch the model's weights again.")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelIncomplete(f"{index} cannot be read ({error}); fetch it again.") from error
    for name in names:
        if Path(name).name != name:
            raise ModelIncomplete(f"{index} names {name!r}, which is outside of the folder; fetch it again.")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelIncomplete(
            f"{folder} lacks {len(missing)} of the {len(names)} weight files its index names, first {missing[0]}; "
            "fetch them again."
        )
    return names


def pickles_only(where: str, name: str) -> str:
    """The sentence that refuses a model whose weights are only there as pickles."""
    return (
        f"{where} has its weights only as pickles ({name}), which can run code when they are read; "
        "save them as safetensors, or use a model that has model.safetensors."
    )


def _count_weights(path: Path) -> int:
    """The number of weights in a safetensors file, which must be as long as its header says."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(size, MAX_HEADER_BYTES):
                raise ValueError("no safetensors header")
            tensors = json.loads(file.read(length))
        tensors.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
        count = sum(int(prod(tensor["shape"])) for tensor in tensors.values())
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelIncomplete(
            f"{path} is not a safetensors file ({error}); fetch it again (a Git LFS pointer needs `git lfs pull`)."
        ) from error
    if size != 8 + length + end:
        raise ModelIncomplete(f"{path} holds {size:,} bytes of {8 + length + end:,}; fetch it again.")
    return count
