"""A model repository on a hub: which of its files a model needs, and what came of fetching them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kev_engine.errors import ModelIncomplete, ModelUnsupported
from kev_engine.models.folder import CONFIG, WEIGHTS, pickles_only

SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")
SMALL_FILES = re.compile(r"[^/]+\.(json|jinja|txt|tiktoken)|tokenizer\.model|chat_templates/.*\.jinja")
PICKLE = re.compile(r"[^/]+\.(bin|pt|pth|ckpt)")


Choose = Callable[[Mapping[str, int], str], dict[str, int]]
"""`choose(files, where)`: which files of a repository (names and sizes in bytes) to fetch; raises what refuses it."""


@dataclass(frozen=True)
class Fetched:
    """The folder that was fetched and the revision it is of; `digest` where the hub knows the content's identity.

    The folder's files may be links, all of them within `root`.
    """

    path: Path
    revision: str
    root: Path
    digest: str | None = None
    warnings: tuple[str, ...] = ()


def needed_files(files: Mapping[str, int], where: str) -> dict[str, int]:
    """The names and sizes of the files to fetch: configuration, tokenizer and safetensors, nothing twice.

    Raises ModelUnsupported for a repository whose weights are only pickled, ModelIncomplete for one that lacks its
    configuration, its weights or one of its shards.
    """
    if CONFIG not in files:
        raise ModelIncomplete(f"{where} has no {CONFIG}; name a repository that holds a transformers model.")
    chosen = {name: size for name, size in files.items() if SMALL_FILES.fullmatch(name)}
    if WEIGHTS in files:
        return {**chosen, WEIGHTS: files[WEIGHTS]}
    shards = {name: match for name in files if (match := SHARD.fullmatch(name))}
    if not shards:
        pickles = sorted(name for name in files if PICKLE.fullmatch(name))
        if pickles:
            raise ModelUnsupported(pickles_only(where, pickles[0]))
        raise ModelIncomplete(f"{where} has no {WEIGHTS}; name a repository that holds one.")
    total = max(int(match[2]) for match in shards.values())
    missing = sorted(set(range(1, total + 1)) - {int(match[1]) for match in shards.values()})
    if missing:
        raise ModelIncomplete(
            f"{where} lacks {len(missing)} of its {total} weight files, first number {missing[0]}; "
            "name another revision, or tell its owner."
        )
    return {**chosen, **{name: files[name] for name in shards}}


def first_line(error: BaseException) -> str:
    """The first line of a library's message, without its full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")
