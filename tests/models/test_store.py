from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kev_engine.errors import NotEnoughSpace
from kev_engine.models.progress import silent
from kev_engine.models.store import MANIFEST, Stored, stored

CONTENT = b"weights" * 1000


class Builder:
    """Writes two files and counts how often it was asked to."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, folder: Path) -> tuple[str, ...]:
        self.count += 1
        (folder / "weights").write_bytes(CONTENT)
        (folder / "config").write_bytes(b"{}")
        return ("a warning",)


def have(models: Path, build: Callable[[Path], tuple[str, ...]], digest: str = "d1", needed_bytes: int = 0) -> Stored:
    return stored(models, "model", digest, build, needed_bytes, silent)


def test_it_is_built_once(tmp_path: Path) -> None:
    build = Builder()
    first = have(tmp_path, build)
    assert have(tmp_path, build) == first == Stored(tmp_path / "model", ("a warning",))
    assert build.count == 1


def cut(folder: Path) -> None:
    (folder / "weights").write_bytes(CONTENT[:-1])


def flip(folder: Path) -> None:
    """Another content of the same size, written later."""
    (folder / "weights").write_bytes(CONTENT[:-1] + b"X")
    os.utime(folder / "weights", ns=(1, 1))


def lose_file(folder: Path) -> None:
    (folder / "config").unlink()


def lose_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def spoil_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"digest": "d1", "files": []}')


def cut_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text[: len(text) // 2])


@pytest.mark.parametrize("damage", [cut, flip, lose_file, lose_manifest, spoil_manifest, cut_manifest, shutil.rmtree])
def test_a_damaged_folder_is_built_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    build = Builder()
    folder = have(tmp_path, build).path
    damage(folder)
    have(tmp_path, build)
    assert build.count == 2
    assert (folder / "weights").read_bytes() == CONTENT
    have(tmp_path, build)
    assert build.count == 2


def test_another_digest_is_built_again(tmp_path: Path) -> None:
    build = Builder()
    have(tmp_path, build)
    have(tmp_path, build, digest="d2")
    assert build.count == 2


def test_a_copied_cache_is_recognised_by_its_content(tmp_path: Path) -> None:
    build = Builder()
    folder = have(tmp_path, build).path
    for path in folder.iterdir():
        os.utime(path, ns=(1, 1))
    have(tmp_path, build)
    assert build.count == 1


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> tuple[str, ...]:
        (folder / "weights").write_bytes(CONTENT)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        have(tmp_path, fail)
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def test_a_killed_build_is_never_used_and_swept(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from kev_engine.models.progress import silent; from kev_engine.models.store import stored\n"
        "def build(folder):\n"
        "    (folder / 'weights').write_bytes(b'half'); print('half', flush=True); time.sleep(60)\n"
        "stored(Path(sys.argv[1]), 'model', 'd1', build, 0, silent)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "model").exists()
    assert len(list(tmp_path.glob(".model.part-*"))) == 1

    folder = have(tmp_path, Builder()).path
    assert (folder / "weights").read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", "model"]


def test_two_that_start_at_once_build_once(tmp_path: Path) -> None:
    build = Builder()
    stages: list[str] = []
    started = threading.Event()

    def slow(folder: Path) -> tuple[str, ...]:
        started.set()
        time.sleep(0.2)
        return build(folder)

    first = threading.Thread(target=have, args=(tmp_path, slow))
    first.start()
    started.wait()
    stored(tmp_path, "model", "d1", build, 0, lambda stage, done, total: stages.append(stage))
    first.join()
    assert build.count == 1
    assert stages == ["wait for another process"]


def test_too_little_disk_is_said_before_anything_is_built(tmp_path: Path) -> None:
    build = Builder()
    with pytest.raises(NotEnoughSpace) as raised:
        have(tmp_path, build, needed_bytes=1 << 60)
    assert raised.value.needed_bytes == 1 << 60
    assert 0 < raised.value.free_bytes < 1 << 60
    assert build.count == 0
