"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path

from kev_engine.errors import NotEnoughSpace

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Bytes of main memory that can be taken without swapping, within the container's limit; None where unknown.

    Linux counts reclaimable caches in (`MemAvailable`, and a container's inactive file pages); elsewhere the free
    pages are what the system tells.
    """
    free = _meminfo(meminfo)
    if free is None and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _container(cgroup)
    known = [bytes_free for bytes_free in (free, limit) if bytes_free is not None]
    return min(known) if known else None


def require_memory(what: str, needed_bytes: int, free_bytes: int | None) -> None:
    """Raises NotEnoughSpace where fewer bytes than needed are known to be free."""
    if free_bytes is not None and free_bytes < needed_bytes:
        raise NotEnoughSpace(
            what, needed_bytes, free_bytes, "close other programs, or choose a smaller model or a smaller dtype"
        )


def _meminfo(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _container(folder: Path) -> int | None:
    """What a version-2 control group leaves, in bytes; None without a limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text())
        pages = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(pages.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
