"""Reading single members of a `.zip` that nobody has to trust: in memory, under a limit, never extracted.

    read_members(path, name, limits, also) -> {file: bytes}
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kev_engine.adapters.reasons import refusal

MAX_MEMBERS = 1000


def read_members(path: Path, name: str, limits: Mapping[str, int], also: str) -> dict[str, bytes]:
    """The contents of the members named in `limits`, each within its limit of bytes, from the one folder that has them.

    A member named `also` is only reported, as empty bytes. Raises AdapterRefused for an archive that is damaged,
    encrypted or holds several adapters, and for members that are links, point outside or are larger than they may be.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, name, limits, also)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        raise refusal(name, "archive_unreadable", path=repr(path.name), error=error) from error


def _read(archive: zipfile.ZipFile, name: str, limits: Mapping[str, int], also: str) -> dict[str, bytes]:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise refusal(name, "archive_members", count=f"{len(members):,}", limit=f"{MAX_MEMBERS:,}")
    homes: dict[PurePosixPath, dict[str, zipfile.ZipInfo]] = {}
    for member in members:
        place = PurePosixPath(member.filename.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts or ":" in member.filename:
            raise refusal(name, "archive_outside", member=repr(member.filename))
        if stat.S_ISLNK(member.external_attr >> 16):
            raise refusal(name, "archive_link", member=repr(member.filename))
        if place.name in limits or place.name == also:
            home = homes.setdefault(place.parent, {})
            if place.name in home:
                raise refusal(name, "archive_twice", member=repr(place.as_posix()))
            home[place.name] = member
    if len(homes) > 1:
        where = ", ".join(sorted(repr(home.as_posix()) for home in homes))
        raise refusal(name, "archive_several", folders=where)
    found: dict[str, bytes] = {}
    for file, member in next(iter(homes.values()), {}).items():
        found[file] = b"" if file == also else _read_member(archive, member, name, limits[file])
    return found


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, limit: int) -> bytes:
    # The size a member declares may lie, so the stream itself is cut at the limit.
    if member.file_size <= limit:
        with archive.open(member) as stream:
            data = stream.read(limit + 1)
        if len(data) <= limit:
            return data
    raise refusal(name, "archive_too_large", member=repr(member.filename), limit=f"{limit:,}")
