from __future__ import annotations

from pathlib import Path

from kev_engine.models.memory import available_bytes


def files(tmp_path: Path, limit: str | None) -> tuple[Path, Path]:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 2000 kB\nMemAvailable: 1000 kB\n")
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    if limit is not None:
        (cgroup / "memory.max").write_text(limit + "\n")
        (cgroup / "memory.current").write_text("500000\n")
        (cgroup / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    return meminfo, cgroup


def test_the_machine_decides_without_a_container(tmp_path: Path) -> None:
    assert available_bytes(*files(tmp_path, None)) == 1024_000


def test_a_container_without_a_limit_changes_nothing(tmp_path: Path) -> None:
    assert available_bytes(*files(tmp_path, "max")) == 1024_000


def test_a_containers_limit_counts_its_reclaimable_pages_as_free(tmp_path: Path) -> None:
    assert available_bytes(*files(tmp_path, "700000")) == 300_000


def test_a_full_container_has_nothing_left(tmp_path: Path) -> None:
    assert available_bytes(*files(tmp_path, "300000")) == 0


def test_this_machine_has_some() -> None:
    here = available_bytes()
    assert here is None or here > 1 << 20
