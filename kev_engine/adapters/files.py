"""The two files of an adapter, as bytes: out of a PEFT folder, a `.zip` of one, or single files. Nothing is unpacked
to disk.

    read_files(path, name) -> AdapterFiles(config, weights)
    needed_files(sizes, where, name) -> {file: size}, for a repository whose files are still to be fetched
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kev_engine.adapters.archive import read_members
from kev_engine.adapters.reasons import refusal

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


def read_files(
    path: Path, name: str, max_bytes: int = MAX_WEIGHTS_BYTES, root: Path | None = None
) -> AdapterFiles:
    """The adapter's two files, the weights at most `max_bytes` long.

    Links may lead anywhere within `root`, which is the folder itself if None (the cache of a hub keeps files beside
    its snapshots). Raises AdapterRefused for a path that is neither a folder nor a `.zip`, a missing file, a pickle in
    place of safetensors, a link that leads out of the root and a file over its limit.
    """
    limits = _limits(max_bytes)
    try:
        if path.is_dir():
            found = {file: path / file for file in (CONFIG, WEIGHTS, PICKLE) if (path / file).exists()}
            _require(found, repr(path.name), name)
            return AdapterFiles(*(_read(found[file], name, limits[file], root or path) for file in limits))
        if path.is_file() and path.suffix.lower() == ".zip":
            members = read_members(path, name, limits, also=PICKLE)
            _require(members, repr(path.name), name)
            return AdapterFiles(members[CONFIG], members[WEIGHTS])
    except (OSError, ValueError) as error:
        raise refusal(name, "unreadable", path=repr(path.name), error=error) from error
    raise refusal(name, "no_source", path=repr(str(path)))


def read_upload(paths: Sequence[Path], name: str, max_bytes: int = MAX_WEIGHTS_BYTES) -> AdapterFiles:
    """The same out of what a person uploaded: one `.zip`, or the two files, each wherever it was put."""
    if len(paths) == 1 and paths[0].suffix.lower() == ".zip":
        return read_files(paths[0], name, max_bytes)
    by_name = {path.name: path for path in paths}
    wanted = {PICKLE} & by_name.keys() or {CONFIG, WEIGHTS}
    if len(by_name) != len(paths) or not wanted <= by_name.keys() <= {CONFIG, WEIGHTS, PICKLE}:
        files = ", ".join(repr(path.name) for path in paths) or "nothing"
        raise refusal(name, "upload", files=files, config=CONFIG, weights=WEIGHTS)
    _require(by_name, "the upload", name)
    limits = _limits(max_bytes)
    return AdapterFiles(*(_read(by_name[file], name, limits[file], by_name[file].parent) for file in limits))


def needed_files(
    sizes: Mapping[str, int], where: str, name: str, max_bytes: int = MAX_WEIGHTS_BYTES
) -> dict[str, int]:
    """Which of a repository's files (given with their sizes in bytes) to fetch. Raises AdapterRefused."""
    _require(sizes, where, name)
    for file, limit in _limits(max_bytes).items():
        if sizes[file] > limit:
            raise refusal(name, "too_large", file=file, limit=f"{limit:,}")
    return {file: sizes[file] for file in (CONFIG, WEIGHTS)}


def _limits(max_bytes: int) -> dict[str, int]:
    return {CONFIG: MAX_CONFIG_BYTES, WEIGHTS: max_bytes}


def _require(found: Collection[str], where: str, name: str) -> None:
    if WEIGHTS not in found and PICKLE in found:
        raise refusal(name, "pickle", path=where, file=PICKLE, command=CONVERT)
    for file in (CONFIG, WEIGHTS):
        if file not in found:
            raise refusal(name, "missing", path=where, file=file)


def _read(path: Path, name: str, limit: int, root: Path) -> bytes:
    real = path.resolve()
    if not real.is_relative_to(root.resolve()):
        raise refusal(name, "link", file=path.name)
    if not real.is_file():
        raise refusal(name, "irregular", file=path.name)
    with real.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise refusal(name, "too_large", file=path.name, limit=f"{limit:,}")
    return data
