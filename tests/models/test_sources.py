from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kev_engine.config import HUB_NAMES, EngineConfig
from kev_engine.errors import InvalidField, ModelIncomplete, ModelNotFound
from kev_engine.models import huggingface, modelscope
from kev_engine.models.folder import WEIGHTS
from kev_engine.models.repository import Fetched
from kev_engine.models.sources import full_name, read_config, resolve
from tests.models.tiny import tiny_folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("sources") / "tiny-model")


def test_a_folder_is_its_own_place(tiny: Path, tmp_path: Path) -> None:
    found = resolve(str(tiny), tmp_path)
    assert (found.path, found.name, found.origin, found.warnings) == (tiny, "tiny-model", str(tiny), ())
    copy = Path(shutil.copytree(tiny, tmp_path / "copy"))
    assert resolve(str(copy), tmp_path).digest == found.digest


@pytest.mark.parametrize(("spec", "words"), [
    ("no/where", "to fetch it write hf:no/where"),
    ("/no/such/folder", "there is no model '/no/such/folder'"),
    ("embeded", "name embedded, a folder, hf:"),
    ("gguf:/no/such.gguf", "there is no GGUF file"),
])
def test_what_is_not_there_is_not_found(tmp_path: Path, spec: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        resolve(spec, tmp_path)


@pytest.mark.parametrize("spec", ["hf:", "hf:name", "hf:a/b/c", "modelscope:own er/x", "hf:a/b@", "hf:https://x.y/z"])
def test_a_hub_name_of_another_form_is_an_input_error(tmp_path: Path, spec: str) -> None:
    with pytest.raises(InvalidField, match="owner/name") as raised:
        resolve(spec, tmp_path)
    assert raised.value.field == "model"


def test_a_gguf_file_without_its_scheme_is_told_of_it(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(InvalidField, match=f"gguf:{file}"):
        resolve(str(file), tmp_path)


def test_what_was_fetched_is_checked_for_wholeness(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub whose index names a shard its listing lacks: the folder check has the last word."""
    broken = Path(shutil.copytree(tiny, tmp_path / "broken"))
    (broken / WEIGHTS).write_bytes(b"cut")
    monkeypatch.setattr(huggingface, "fetch", lambda *_, **__: Fetched(broken, "main", broken))
    with pytest.raises(ModelIncomplete, match="hf:owner/name was fetched but is not whole"):
        resolve("hf:owner/name", tmp_path)


def test_a_bare_name_is_of_the_chosen_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(hub: str) -> object:
        def note(name: str, *_: object, **__: object) -> Fetched:
            asked.append(f"{hub} {name}")
            raise ModelNotFound("as expected.")
        return note

    monkeypatch.setattr(huggingface, "fetch", fetch("huggingface"))
    monkeypatch.setattr(modelscope, "fetch", fetch("modelscope"))
    for hub in HUB_NAMES:
        with pytest.raises(ModelNotFound, match="as expected"):
            resolve("owner/name", tmp_path, hub=hub)
    assert asked == ["huggingface owner/name", "modelscope owner/name"]


def test_a_hub_changes_no_other_name(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "folder").mkdir(parents=True)
    for spec in ("embedded", "hf:owner/name", "modelscope:owner/name@v1", "gguf:a/b.gguf", str(tiny), "owner/folder"):
        assert full_name(spec, "modelscope") == spec
    assert full_name("owner/name@v1", "modelscope") == "modelscope:owner/name@v1"
    assert full_name("owner/name", None) == "owner/name"


def test_the_hub_is_read_from_the_environment_and_checked() -> None:
    assert EngineConfig.from_env({"KEV_HUB": "modelscope"}).hub == "modelscope"
    assert EngineConfig.from_env({}).hub is None
    with pytest.raises(InvalidField, match="huggingface, modelscope") as caught:
        EngineConfig.from_env({"KEV_HUB": "github"})
    assert caught.value.field == "hub"


def test_a_configuration_is_read_without_its_weights(tiny: Path, tmp_path: Path) -> None:
    alone = tmp_path / "config-only"
    alone.mkdir()
    shutil.copy(tiny / "config.json", alone)
    found = read_config(str(alone), tmp_path)
    assert (found.name, found.values["num_hidden_layers"]) == ("config-only", 2)
    (alone / "config.json").write_text("{")
    with pytest.raises(ModelIncomplete, match="cannot be read"):
        read_config(str(alone), tmp_path)
    (alone / "config.json").unlink()
    with pytest.raises(ModelIncomplete, match="has no config"):
        read_config(str(alone), tmp_path)
    with pytest.raises(InvalidField, match=r"has no config\.json"):
        read_config("gguf:a.gguf", tmp_path)
