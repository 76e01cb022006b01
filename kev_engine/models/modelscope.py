"""Models from ModelScope, or from the endpoint that MODELSCOPE_ENDPOINT names, kept in ModelScope's own cache."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from kev_engine.errors import KevError, ModelNotFound, ModelUnreachable
from kev_engine.models.folder import CONFIG
from kev_engine.models.progress import Progress
from kev_engine.models.repository import Choose, Fetched, first_line, needed_files
from kev_engine.models.store import require_disk

MODEL = "model"
DEFAULT_REVISION = "master"


def fetch(
    name: str, revision: str | None, progress: Progress, cache: Path | None = None, endpoint: str | None = None,
    choose: Choose = needed_files,
) -> Fetched:
    """The snapshot of `name`, of the files that `choose` takes; those that the cache holds whole are not sent again.

    `cache` and `endpoint` default to the library's own (MODELSCOPE_CACHE, MODELSCOPE_ENDPOINT). Where ModelScope does
    not answer, the snapshot in the cache serves, with a warning. Raises ModelNotFound, ModelUnreachable,
    ModelIncomplete, ModelUnsupported and NotEnoughSpace.
    """
    from modelscope_hub import HubApi
    from modelscope_hub.config import HubConfig
    from modelscope_hub.errors import HubError, NotExistError

    config = HubConfig(endpoint=endpoint) if cache is None else HubConfig(endpoint=endpoint, cache_dir=cache)
    api = HubApi(config=config)
    hub = config.endpoint
    where = f"modelscope:{name}" + (f"@{revision}" if revision else "")
    try:
        listed = api.list_repo_files(name, MODEL, revision=revision)
    except NotExistError as error:
        raise ModelNotFound(f"there is no repository {where} on {hub}; check the name and the revision.") from error
    except (HubError, OSError) as error:
        return _from_cache(api, name, revision, hub, error)
    entries = {entry.path: entry for entry in listed if entry.type != "tree"}
    files = choose({path: entry.size for path, entry in entries.items()}, where)
    held = _cached(api, name, revision)
    absent = sum(size for file, size in files.items() if held is None or not (held / file).is_file())
    require_disk(f"the download of {where}", config.cache_dir, absent)
    wanted = [{"Path": file, "Size": size, "Sha256": entries[file].sha256} for file, size in files.items()]
    try:
        path = api.download_repo(
            name, MODEL, revision=revision, file_list=wanted, progress_callbacks=[_counter(progress, absent)]
        )
    except _Stopped as stopped:
        raise stopped.error from None
    except (HubError, OSError) as error:
        causes = getattr(error, "failed_files", None) or {"": error}
        raise ModelUnreachable(
            f"{hub} broke off while sending {where} ({first_line(next(iter(causes.values())))}); "
            "start again, what has arrived whole is kept."
        ) from error
    return Fetched(Path(path), revision or DEFAULT_REVISION, Path(path))


def fetch_config(name: str, revision: str | None, cache: Path | None = None, endpoint: str | None = None) -> Path:
    """The config.json of `name` alone; where ModelScope does not answer, the one in the cache.

    Raises ModelNotFound (also where the repository has no such file) and ModelUnreachable.
    """
    from modelscope_hub import HubApi
    from modelscope_hub.config import HubConfig
    from modelscope_hub.errors import HubError, NotExistError

    config = HubConfig(endpoint=endpoint) if cache is None else HubConfig(endpoint=endpoint, cache_dir=cache)
    api = HubApi(config=config)
    try:
        return Path(api.download_file(name, MODEL, CONFIG, revision=revision))
    except NotExistError as error:
        raise ModelNotFound(f"there is no modelscope:{name} with a {CONFIG}; check the name and the revision."
                            ) from error
    except (HubError, OSError) as error:
        held = _cached(api, name, revision)
        if held is None or not (held / CONFIG).is_file():
            raise _silent(config.endpoint, name, error) from error
        return held / CONFIG


def _silent(hub: str | None, name: str, error: Exception) -> ModelUnreachable:
    return ModelUnreachable(
        f"{hub} does not answer for {name} ({first_line(error)}); check the network, "
        "or set MODELSCOPE_ENDPOINT to another address."
    )


def _from_cache(api: Any, name: str, revision: str | None, hub: str | None, error: Exception) -> Fetched:
    path = _cached(api, name, revision)
    if path is None:
        raise _silent(hub, name, error) from error
    note = f"{hub} does not answer, so {name} is used as it is in the cache, {path}."
    return Fetched(path, path.name, path, None, (note,))


def _cached(api: Any, name: str, revision: str | None) -> Path | None:
    from modelscope_hub.errors import CacheNotFound

    try:
        return Path(api.download_repo(name, MODEL, revision=revision, local_files_only=True))
    except CacheNotFound:
        return None


class _Stopped(BaseException):
    """Carries what `progress` raised out of the client, which would take an Exception for a failure and try again."""

    def __init__(self, error: KevError) -> None:
        super().__init__()
        self.error = error


def _counter(progress: Progress, total: int) -> type:
    """A callback class (the library makes one a file) that adds up what has arrived of all files."""
    from modelscope_hub import ProgressCallback

    lock = threading.Lock()
    done = 0

    class Counter(ProgressCallback):
        def update(self, size: int) -> None:
            nonlocal done
            with lock:
                done += size
                try:
                    progress("download", min(done, total), total)
                except KevError as error:
                    raise _Stopped(error) from error

    return Counter
