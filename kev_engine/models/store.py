"""Folders of converted models: each is complete with its manifest, or it is built again. Never half-used."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kev_engine.errors import NotEnoughSpace
from kev_engine.models.progress import Progress

MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Stored:
    """A complete folder, and what its builder had to warn of."""

    path: Path
    warnings: tuple[str, ...]


def stored(
    models: Path, name: str, digest: str, build: Callable[[Path], tuple[str, ...]], needed_bytes: int,
    progress: Progress,
) -> Stored:
    """The folder `models/name` with the content that `digest` stands for, built first where it is not whole.

    `build(folder)` fills an empty folder and returns its warnings. It works beside the final place; the files reach
    the disk, then the manifest, then the folder gets its name in one step. A lock keeps two processes from building
    at once, and what a killed one left is swept. Raises NotEnoughSpace and whatever `build` raises.
    """
    folder = models / name
    if (found := _whole(folder, digest)) is not None:
        return found
    models.mkdir(parents=True, exist_ok=True)
    with locked(models / f".{name}.lock", progress):
        if (found := _whole(folder, digest)) is not None:
            return found
        for leftover in models.glob(f".{name}.part-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if folder.exists():
            progress("repair", 0, 0)
            shutil.rmtree(folder)
        require_disk(f"the model in {models}", models, needed_bytes)
        part = models / f".{name}.part-{os.getpid()}"
        part.mkdir()
        try:
            warnings = build(part)
            _write_manifest(part, digest, warnings)
            part.rename(folder)
            _sync(models)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Stored(folder, warnings)


def _whole(folder: Path, digest: str) -> Stored | None:
    """The folder where its manifest names this digest and every file is as it was written; None otherwise.

    Sizes and modification times are compared; where only the time differs (a copied cache) the content decides.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["digest"] != digest:
            return None
        for name, wanted in manifest["files"].items():
            status = (folder / name).stat()
            if status.st_size != wanted["bytes"]:
                return None
            if status.st_mtime_ns != wanted["mtime_ns"] and sha256(folder / name) != wanted["sha256"]:
                return None
        return Stored(folder, tuple(manifest["warnings"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_manifest(folder: Path, digest: str, warnings: tuple[str, ...]) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        _sync(path)
        status = path.stat()
        files[path.name] = {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256(path)}
    manifest = folder / MANIFEST
    text = json.dumps({"digest": digest, "files": files, "warnings": list(warnings)}, indent=1)
    manifest.write_text(text, encoding="utf-8")
    _sync(manifest)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock file for the block, waiting for another process where one has it; a killed one lets go."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("wait for another process", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_disk(what: str, folder: Path, needed_bytes: int) -> None:
    """Raises NotEnoughSpace where the disk that holds `folder` (or will) has fewer bytes free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise NotEnoughSpace(
            what, needed_bytes, free, "free some disk space or set KEV_HOME to a folder on another disk"
        )
