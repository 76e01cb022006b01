"""Where a model comes from: `resolve` turns what a user names into a folder on this disk."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kev_engine.config import EMBEDDED
from kev_engine.errors import InvalidField, ModelIncomplete, ModelNotFound
from kev_engine.models import embedded, gguf, huggingface, modelscope
from kev_engine.models.folder import CONFIG, folder_digest, model_files
from kev_engine.models.progress import Progress, silent
from kev_engine.models.repository import Choose, Fetched, needed_files
from kev_engine.models.store import sha256, stored

HF, MODELSCOPE, GGUF = "hf:", "modelscope:", "gguf:"
HUBS = {"huggingface": HF, "modelscope": MODELSCOPE}
"""Where a bare owner/name may come from, by the name that KEV_HUB takes."""
REPOSITORY = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")
WAY_OUT = "name embedded, a folder, hf:owner/name[@revision], modelscope:owner/name[@revision] or gguf:path"


@dataclass(frozen=True)
class ResolvedModel:
    """A folder with configuration, safetensors and tokenizer.

    `name` is what a person calls the model, `digest` identifies weights and tokenizer, `origin` says where they came
    from (with the revision that was used), `warnings` what a user should know. `is_converted`: this program wrote it.
    """

    path: Path
    name: str
    digest: str
    origin: str
    warnings: tuple[str, ...] = ()
    is_converted: bool = False


def resolve(spec: str, home: Path, progress: Progress = silent, hub: str | None = None) -> ResolvedModel:
    """The folder of the model that `spec` names, fetched or converted first where that is needed.

    `hub` is where a bare owner/name comes from, see `full_name`. Raises InvalidField for a spec of no known form,
    ModelNotFound, ModelUnreachable, ModelIncomplete, ModelUnsupported and NotEnoughSpace.
    """
    spec = full_name(spec, hub)
    if spec == EMBEDDED:
        found = embedded.embedded(home, progress)
        return ResolvedModel(found.path, embedded.NAME, embedded.DIGEST, embedded.REQUIREMENT, found.warnings, True)
    if spec.startswith(GGUF):
        return _from_gguf(Path(spec.removeprefix(GGUF)).expanduser(), home, progress)
    if spec.startswith((HF, MODELSCOPE)):
        return _from_hub(spec, progress)
    return _from_folder(spec)


def full_name(spec: str, hub: str | None) -> str:
    """The spec with its scheme: a bare owner/name that is no folder is of `hub`, where one was chosen."""
    if hub is None or not REPOSITORY.fullmatch(spec) or Path(spec).expanduser().exists():
        return spec
    return HUBS[hub] + spec


@dataclass(frozen=True)
class ModelConfig:
    """The content of a model's config.json, and what a person calls the model."""

    values: dict[str, Any]
    name: str


def read_config(spec: str, home: Path, hub: str | None = None) -> ModelConfig:
    """The configuration of the model that `spec` names (as in `resolve`); of one on a hub nothing else is fetched.

    Raises as `resolve` does, and InvalidField for a GGUF file, which has none.
    """
    spec = full_name(spec, hub)
    if spec.startswith(GGUF):
        raise InvalidField("model", spec, "a GGUF file has no config.json; name the model it was made from")
    if spec.startswith((HF, MODELSCOPE)):
        scheme, match = _hub_name(spec)
        fetch = huggingface.fetch_config if spec.startswith(HF) else modelscope.fetch_config
        return ModelConfig(_read_json(fetch(match["name"], match["revision"])), f"{scheme}:{match['name']}")
    if spec == EMBEDDED:
        return ModelConfig(_read_json(resolve(spec, home).path / CONFIG), embedded.NAME)
    folder = _folder(spec)
    if not (folder / CONFIG).is_file():
        raise ModelIncomplete(f"{folder} has no {CONFIG}; name the folder that holds it.")
    return ModelConfig(_read_json(folder / CONFIG), folder.resolve().name)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{path} cannot be read ({error}); fetch it again.") from error
    if not isinstance(values, dict):
        raise ModelIncomplete(f"{path} holds no object; fetch it again.")
    return values


def _hub_name(spec: str, field: str = "model") -> tuple[str, re.Match[str]]:
    scheme, rest = spec.split(":", 1)
    match = REPOSITORY.fullmatch(rest)
    if match is None:
        raise InvalidField(
            field, spec, f"a repository on a hub is named {scheme}:owner/name, or with @revision behind it"
        )
    return scheme, match


def fetch_repository(
    spec: str, progress: Progress, choose: Choose = needed_files, field: str = "model"
) -> Fetched:
    """The files that `choose` takes of the repository `spec` (hf:… or modelscope:…), which is the value of `field`.

    Raises InvalidField for a name of another form, what the hub's `fetch` raises, and what `choose` raises.
    """
    _, match = _hub_name(spec, field)
    fetch = huggingface.fetch if spec.startswith(HF) else modelscope.fetch
    return fetch(match["name"], match["revision"], progress, choose=choose)


def _from_folder(spec: str) -> ResolvedModel:
    folder = _folder(spec)
    files = model_files(folder)
    return ResolvedModel(folder, folder.resolve().name, folder_digest(folder, files), str(folder.resolve()))


def _folder(spec: str) -> Path:
    folder = Path(spec).expanduser()
    if spec.endswith(".gguf") and folder.is_file():
        raise InvalidField("model", spec, f"a GGUF file is named gguf:{spec}")
    if not folder.exists() and REPOSITORY.fullmatch(spec):
        raise ModelNotFound(f"there is no folder {spec!r}; to fetch it write hf:{spec} or modelscope:{spec}.")
    if not folder.exists():
        raise ModelNotFound(f"there is no model {spec!r}; {WAY_OUT}.")
    return folder


def _from_gguf(file: Path, home: Path, progress: Progress) -> ResolvedModel:
    if not file.is_file():
        raise ModelNotFound(f"there is no GGUF file {file}; check the path behind gguf:.")
    header = gguf.read_header(file)
    digest = gguf.content_digest(sha256(file))
    found = stored(
        home / "models", f"gguf-{digest[:12]}", digest, lambda folder: gguf.convert(file, folder, progress),
        header.num_weights * gguf.FP32_BYTES, progress,
    )
    return ResolvedModel(found.path, file.stem, digest, str(file.resolve()), found.warnings, True)


def _from_hub(spec: str, progress: Progress) -> ResolvedModel:
    scheme, match = _hub_name(spec)
    found = fetch_repository(spec, progress)
    try:
        files = model_files(found.path)
    except ModelIncomplete as error:
        raise ModelIncomplete(f"{spec} was fetched but is not whole: {error}") from error
    digest = found.digest or folder_digest(found.path, files)
    origin = f"{scheme}:{match['name']}@{found.revision}"
    return ResolvedModel(found.path, match["name"], digest, origin, found.warnings)
