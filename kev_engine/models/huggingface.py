"""Models from the Hugging Face hub, or from the mirror that HF_ENDPOINT names, kept in the hub's own cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kev_engine.errors import LoadCancelled, ModelError, ModelIncomplete, ModelNotFound, ModelUnreachable
from kev_engine.models.folder import CONFIG
from kev_engine.models.progress import Progress, byte_bar
from kev_engine.models.repository import Choose, Fetched, first_line, needed_files
from kev_engine.models.store import require_disk


def fetch(
    name: str, revision: str | None, progress: Progress, cache: Path | None = None, endpoint: str | None = None,
    choose: Choose = needed_files,
) -> Fetched:
    """The snapshot of `name`, of the files that `choose` takes; only what is not in the cache is downloaded.

    `cache` and `endpoint` default to the hub library's own (HF_HOME, HF_ENDPOINT). Where the hub does not answer, a
    whole snapshot in the cache serves, with a warning. Raises ModelNotFound, ModelUnreachable, ModelIncomplete,
    ModelUnsupported and NotEnoughSpace.
    """
    from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache

    where = f"hf:{name}" + (f"@{revision}" if revision else "")
    hub = endpoint or constants.ENDPOINT
    folder = Path(cache or constants.HF_HUB_CACHE)
    try:
        with _named(name, revision, hub):
            info = HfApi(endpoint=endpoint).model_info(name, revision=revision, files_metadata=True)
    except ModelError:
        raise
    except Exception as error:  # The client raises its transport's errors as they come.
        return _from_cache(name, revision, folder, hub, error, choose)
    files = choose({item.rfilename: item.size or 0 for item in info.siblings or ()}, where)
    absent = [
        size for file, size in files.items()
        if not isinstance(try_to_load_from_cache(name, file, cache_dir=folder, revision=info.sha), str)
    ]
    require_disk(f"the download of {where}", folder, sum(absent))
    try:
        with _in_pieces():
            path = Path(snapshot_download(
                name, revision=revision, cache_dir=folder, endpoint=endpoint, allow_patterns=list(files),
                tqdm_class=byte_bar("download", progress),
            ))
    except LoadCancelled:
        raise
    except Exception as error:
        raise ModelUnreachable(
            f"{hub} broke off while sending {where} ({first_line(error)}); start again, what has arrived whole is kept."
        ) from error
    for file, size in files.items():
        if not (path / file).is_file() or (path / file).stat().st_size != size:
            raise ModelIncomplete(f"{path / file} is not whole; remove it and start again.")
    return Fetched(path, path.name, _root(path), f"hf:{path.name}")


def fetch_config(name: str, revision: str | None, cache: Path | None = None, endpoint: str | None = None) -> Path:
    """The config.json of `name` alone; where the hub does not answer, the one in the cache.

    Raises ModelNotFound, ModelUnreachable, and ModelIncomplete where the repository has none.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    hub = endpoint or constants.ENDPOINT
    try:
        with _named(name, revision, hub), _in_pieces():
            return Path(hf_hub_download(name, CONFIG, revision=revision, cache_dir=cache, endpoint=endpoint))
    except ModelError:
        raise
    except LocalEntryNotFoundError as error:
        raise _silent(hub, name, error) from error
    except EntryNotFoundError as error:
        raise ModelIncomplete(f"hf:{name} has no {CONFIG}; name a repository of a transformers model.") from error
    except Exception as error:  # The client raises its transport's errors as they come.
        raise _silent(hub, name, error) from error


@contextmanager
def _in_pieces() -> Iterator[None]:
    """Files come over HTTP inside the block: each piece is told to the progress, which may end the load there.

    Xet takes a file over as a whole, and what a progress raises meanwhile does not reach it.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_DISABLE_XET
    constants.HF_HUB_DISABLE_XET = True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before


@contextmanager
def _named(name: str, revision: str | None, hub: str) -> Iterator[None]:
    """Turns what the hub says about a name or a revision into our errors; everything else passes."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"hf:{name}" + (f"@{revision}" if revision else "")
    try:
        yield
    except GatedRepoError as error:
        raise ModelUnreachable(
            f"{where} is gated; accept its terms on {hub}/{name} and set HF_TOKEN to your token."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotFound(f"{name} on {hub} has no revision {revision!r}; leave it out or name another.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"there is no repository {name!r} on {hub}; check the name, or set HF_TOKEN where it is private."
        ) from error


def _silent(hub: str, name: str, error: Exception) -> ModelUnreachable:
    return ModelUnreachable(
        f"{hub} does not answer for {name} ({first_line(error)}); check the network, or set HF_ENDPOINT to a mirror."
    )


def _root(snapshot: Path) -> Path:
    """The repository's folder in the cache: snapshots/REVISION holds links to the files in blobs."""
    return snapshot.parents[1]


def _from_cache(
    name: str, revision: str | None, cache: Path, hub: str, error: Exception, choose: Choose
) -> Fetched:
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

    try:
        tree = get_cached_repo_tree(name, revision=revision, cache_dir=cache)
        files = choose({item.path: item.size for item in tree}, f"hf:{name} in the cache")
        path = Path(snapshot_download(
            name, revision=revision, cache_dir=cache, allow_patterns=list(files), local_files_only=True
        ))
    except (CachedRepoTreeNotFoundError, LocalEntryNotFoundError):
        raise _silent(hub, name, error) from error
    note = f"{hub} does not answer, so revision {path.name} of {name} from the cache is used."
    return Fetched(path, path.name, _root(path), f"hf:{path.name}", (note,))

