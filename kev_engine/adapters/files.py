"""The two files of an adapter, out of a PEFT folder or a `.zip` of one, as bytes. Nothing is ever unpacked to disk.

    read_files(path, name) -> AdapterFiles(config, weights)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kev_engine.adapters.archive import read_members
from kev_engine.errors import AdapterRefused

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MAX_CONFIG_BYTES = 1 << 20
MAX_WEIGHTS_BYTES = 2 << 30

CONVERT = (
    f"python -c \"import torch; from safetensors.torch import save_file; "
    f"save_file(torch.load('{PICKLE}', map_location='cpu', weights_only=True), '{WEIGHTS}')\""
)


@dataclass(frozen=True)
class AdapterFiles:
    """The raw contents of `adapter_config.json` and `adapter_model.safetensors`."""

    config: bytes
    weights: bytes


def read_files(path: Path, name: str, max_bytes: int = MAX_WEIGHTS_BYTES) -> AdapterFiles:
    """The adapter's two files, the weights at most `max_bytes` long.

    Raises AdapterRefused for a path that is neither a folder nor a `.zip`, a missing file, a pickle in place of
    safetensors, a link that leads out of the folder and a file over its limit.
    """
    limits = {CONFIG: MAX_CONFIG_BYTES, WEIGHTS: max_bytes}
    try:
        if path.is_dir():
            found = _read_folder(path, name, limits)
        elif path.is_file() and path.suffix.lower() == ".zip":
            found = read_members(path, name, limits, also=PICKLE)
        else:
            raise AdapterRefused(name, f"{path.name!r} is neither a folder nor a .zip of one")
    except (OSError, ValueError) as error:
        raise AdapterRefused(name, f"{path.name!r} cannot be read ({error})") from error
    if WEIGHTS not in found and PICKLE in found:
        raise AdapterRefused(
            name, f"it has only {PICKLE}, a pickle that could run code; convert it where you trust it: {CONVERT}"
        )
    for file in (CONFIG, WEIGHTS):
        if file not in found:
            raise AdapterRefused(name, f"{path.name!r} has no {file}")
    return AdapterFiles(found[CONFIG], found[WEIGHTS])


def _read_folder(folder: Path, name: str, limits: dict[str, int]) -> dict[str, bytes]:
    """The contents of the wanted files; a pickle is only reported, as empty bytes."""
    home = folder.resolve()
    found: dict[str, bytes] = {PICKLE: b""} if (folder / PICKLE).exists() else {}
    for file, limit in limits.items():
        real = (folder / file).resolve()
        if not real.exists():
            continue
        if not real.is_relative_to(home):
            raise AdapterRefused(name, f"{file} is a link out of its folder; copy the file itself into the folder")
        if not real.is_file():
            raise AdapterRefused(name, f"{file} is not a regular file")
        with real.open("rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise AdapterRefused(name, f"{file} is larger than the limit of {limit:,} bytes")
        found[file] = data
    return found
