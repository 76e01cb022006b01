"""What the form of the adapters tab holds -> a name and a source; a mistake names its field."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from kev_engine import InputError

_HUB = re.compile(r"(hf|modelscope):[^/]*/(?P<name>[^@]*)(@.*)?")
_PEFTS_OWN = re.compile(r"adapter_(model|config)(\.\w+)?")


class NoAdapterSource(InputError):
    """Nothing was uploaded and nothing named, or both."""

    code = "adapter_source"


class NoAdapterName(InputError):
    """No name was given, and what was uploaded tells none."""

    code = "adapter_name"


class AdapterNameTaken(InputError):
    """Another adapter has this name; it is never replaced by accident."""

    code = "adapter_taken"


class AdaptersFixed(InputError):
    """This public page keeps the adapters it was started with."""

    code = "adapters_fixed"


@dataclass(frozen=True)
class AdapterForm:
    """A name, and what to read under it: a folder, a name on a hub, or uploaded files."""

    name: str
    source: str | tuple[Path, ...]


def parse(
    name: str, source: str, uploads: Sequence[str], loaded: Collection[str], replacing: str = ""
) -> AdapterForm:
    """The adapter that the form describes; `replacing` is the one whose content is exchanged.

    Without a name it gets that of its folder, archive or repository. Raises NoAdapterSource, NoAdapterName and
    AdapterNameTaken.
    """
    source, name = source.strip(), name.strip()
    if bool(source) == bool(uploads):
        raise NoAdapterSource("give either files or a name of where they are.", both=bool(source))
    paths = tuple(Path(upload) for upload in uploads)
    name = replacing or name or _name_of(source, paths)
    if not name:
        raise NoAdapterName("the adapter needs a name.")
    if name in loaded and name != replacing:
        raise AdapterNameTaken(f"{name!r} is loaded already.", name=name)
    return AdapterForm(name, source or paths)


def _name_of(source: str, paths: Sequence[Path]) -> str:
    if found := _HUB.fullmatch(source):
        return found["name"]
    if source:
        path = Path(source)
        return path.stem if path.suffix.lower() == ".zip" else path.name
    names = [path.stem for path in paths if not _PEFTS_OWN.fullmatch(path.name)]
    return names[0] if len(paths) == 1 and names else ""
