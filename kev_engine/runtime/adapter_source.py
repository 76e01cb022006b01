"""Where an adapter comes from: a folder, a `.zip`, uploaded files or a repository on a hub, as its two files.

    read_source(source, name) -> AdapterFiles
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kev_engine.adapters.files import MAX_WEIGHTS_BYTES, AdapterFiles, needed_files, read_files, read_upload
from kev_engine.adapters.reasons import refusal
from kev_engine.errors import ModelError
from kev_engine.models.progress import Progress, silent
from kev_engine.models.sources import HF, MODELSCOPE, fetch_repository, full_name

AdapterSource = str | Path | Sequence[Path]
"""hf:owner/name[@revision], modelscope:owner/name[@revision], a folder, a `.zip` of one, or a list of loose files."""


def read_source(
    source: AdapterSource, name: str, progress: Progress = silent, max_bytes: int = MAX_WEIGHTS_BYTES,
    hub: str | None = None,
) -> AdapterFiles:
    """The two files of an adapter; from a hub nothing else is fetched, and nothing that is over the limit.

    `hub` is where a bare owner/name comes from, as with models; None: such a name needs its scheme.
    Raises AdapterRefused, with what a hub said as its reason, and InvalidField for a name on a hub that is none.
    """
    if isinstance(source, str):
        source = full_name(source, hub)
    if isinstance(source, str) and source.startswith((HF, MODELSCOPE)):
        try:
            found = fetch_repository(
                source, progress, lambda files, where: needed_files(files, where, name, max_bytes), "adapter"
            )
        except ModelError as error:
            raise refusal(name, "hub", message=str(error).rstrip(".")) from error
        return read_files(found.path, name, max_bytes, found.root)
    if isinstance(source, str | Path):
        return read_files(Path(source).expanduser(), name, max_bytes)
    return read_upload(source, name, max_bytes)
