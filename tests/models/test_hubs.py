"""The real clients of both hubs against a server on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from kev_engine.errors import ModelIncomplete, ModelNotFound, ModelUnreachable, ModelUnsupported, NotEnoughSpace
from kev_engine.models import huggingface, modelscope
from kev_engine.models.folder import WEIGHTS
from kev_engine.models.progress import silent
from kev_engine.models.repository import Fetched, needed_files
from tests.models.hub_server import COMMIT, LocalHub, local_hub
from tests.models.tiny import tiny_folder, tiny_model

NAME = "owner/tiny"
WANTED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tiny_folder(tmp_path / "repository")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "README.md").write_text("read me")
    (folder / "onnx").mkdir()
    (folder / "onnx" / WEIGHTS).write_bytes(b"another format")
    return folder


@pytest.fixture
def hub(repository: Path) -> Iterator[LocalHub]:
    with local_hub({NAME: repository}) as server:
        yield server


@dataclass(frozen=True)
class Client:
    module: ModuleType
    hub: LocalHub
    cache: Path

    def fetch(self, name: str = NAME, revision: str | None = None, endpoint: str | None = None) -> Fetched:
        found: Fetched = self.module.fetch(
            name, revision, silent, cache=self.cache, endpoint=endpoint or self.hub.endpoint
        )
        return found


@pytest.fixture(params=[huggingface, modelscope], ids=["huggingface", "modelscope"])
def client(request: pytest.FixtureRequest, hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path / "modelscope"))
    # The clients wait between their tries; the tries are what is tested.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("modelscope_hub._download_control._DownloadControl.sleep", lambda self, seconds: None)
    return Client(request.param, hub, tmp_path / "cache")


def test_only_what_a_model_needs_is_fetched(client: Client, repository: Path) -> None:
    found = client.fetch()
    assert {path.name for path in found.path.iterdir()} == WANTED | {WEIGHTS}
    for path in found.path.iterdir():
        assert path.read_bytes() == (repository / path.name).read_bytes()
    assert client.hub.sent("pytorch_model.bin") == 0
    assert found.warnings == ()


def test_the_second_time_nothing_is_sent(client: Client) -> None:
    first = client.fetch()
    assert client.fetch() == first
    assert client.hub.sent(WEIGHTS) == 1


def test_progress_counts_the_bytes(client: Client, repository: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    client.module.fetch(
        NAME, None, lambda *step: seen.append(step), cache=client.cache, endpoint=client.hub.endpoint
    )
    total = sum((repository / name).stat().st_size for name in WANTED | {WEIGHTS})
    assert seen[-1] == ("download", total, total)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_shards_are_fetched_with_their_index(client: Client, repository: Path) -> None:
    (repository / WEIGHTS).unlink()
    tiny_model("llama").save_pretrained(repository, max_shard_size="40KB")
    names = {path.name for path in client.fetch().path.iterdir()}
    assert {path.name for path in repository.glob("model-*.safetensors")} <= names
    assert "model.safetensors.index.json" in names


def test_a_configuration_alone_is_fetched_alone(client: Client, repository: Path) -> None:
    path = client.module.fetch_config(NAME, None, cache=client.cache, endpoint=client.hub.endpoint)
    assert path.read_bytes() == (repository / "config.json").read_bytes()
    assert client.hub.sent(WEIGHTS) == 0
    assert client.hub.sent("tokenizer.json") == 0


def test_a_configuration_serves_from_the_cache_where_the_hub_is_down(client: Client) -> None:
    whole = client.fetch()
    client.hub.failure = "down"
    path = client.module.fetch_config(NAME, None, cache=client.cache, endpoint=client.hub.endpoint)
    assert path.read_bytes() == (whole.path / "config.json").read_bytes()


def test_a_configuration_that_cannot_be_had_is_told_of(client: Client, repository: Path) -> None:
    given = {"cache": client.cache, "endpoint": client.hub.endpoint}
    with pytest.raises(ModelNotFound, match="owner/nothing"):
        client.module.fetch_config("owner/nothing", None, **given)
    (repository / "config.json").unlink()
    with pytest.raises((ModelIncomplete, ModelNotFound), match=r"config\.json"):
        client.module.fetch_config(NAME, None, **given)
    client.hub.failure = "down"
    with pytest.raises(ModelUnreachable, match="does not answer"):
        client.module.fetch_config("owner/other", None, **given)


def test_an_unknown_name_is_not_found(client: Client) -> None:
    with pytest.raises(ModelNotFound, match="owner/nothing"):
        client.fetch("owner/nothing")


def test_an_unknown_revision_is_not_found(client: Client) -> None:
    with pytest.raises(ModelNotFound, match="v9"):
        client.fetch(revision="v9")


class Change(NamedTuple):
    do: Callable[[Path], object]
    error: type[Exception]
    words: str


def lose_second_shard(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    tiny_model("llama").save_pretrained(folder, max_shard_size="40KB")
    next(folder.glob("model-00002-of-*")).unlink()


@pytest.mark.parametrize("change", [
    Change(lambda folder: (folder / WEIGHTS).unlink(), ModelUnsupported, "only as pickles"),
    Change(lambda folder: (folder / "config.json").unlink(), ModelIncomplete, "no config.json"),
    Change(lambda folder: [(folder / name).unlink() for name in (WEIGHTS, "pytorch_model.bin")], ModelIncomplete,
           "no model.safetensors"),
    Change(lose_second_shard, ModelIncomplete, "weight files, first number 2"),
], ids=["pickles", "no-config", "no-weights", "missing-shard"])
def test_a_repository_without_its_files_is_refused_before_anything_is_sent(
    client: Client, repository: Path, change: Change
) -> None:
    change.do(repository)
    with pytest.raises(change.error, match=change.words):
        client.fetch()
    assert client.hub.sent(".json") == 0


@pytest.mark.parametrize("failure", ["down", "refused"])
def test_a_hub_that_does_not_answer_is_said_so(client: Client, failure: str) -> None:
    client.hub.failure = "down"
    endpoint = "http://127.0.0.1:9" if failure == "refused" else None
    with pytest.raises(ModelUnreachable, match="does not answer for owner/tiny") as raised:
        client.fetch(endpoint=endpoint)
    assert "ENDPOINT" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_whole_copy_in_the_cache_serves_with_a_warning_while_the_hub_is_down(client: Client) -> None:
    first = client.fetch()
    client.hub.failure = "down"
    second = client.fetch()
    assert second.path == first.path
    assert len(second.warnings) == 1
    assert "does not answer" in second.warnings[0]


def test_a_broken_download_is_said_so_and_goes_on_the_next_time(client: Client, repository: Path) -> None:
    client.hub.failure = "cut"
    with pytest.raises(ModelUnreachable, match="broke off"):
        client.fetch()
    client.hub.failure = None
    found = client.fetch()
    assert (found.path / WEIGHTS).read_bytes() == (repository / WEIGHTS).read_bytes()


def test_too_little_disk_is_said_before_anything_is_sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path.cwd())
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(NotEnoughSpace, match="the download of"):
        client.fetch()
    assert client.hub.sent(WEIGHTS) == 0


def test_a_gated_model_names_the_way_in(hub: LocalHub, tmp_path: Path) -> None:
    hub.failure = "gated"
    with pytest.raises(ModelUnreachable, match=r"gated.*HF_TOKEN"):
        huggingface.fetch(NAME, None, silent, cache=tmp_path / "cache", endpoint=hub.endpoint)


def test_a_commit_pins_the_snapshot(hub: LocalHub, tmp_path: Path) -> None:
    found = huggingface.fetch(NAME, COMMIT, silent, cache=tmp_path / "cache", endpoint=hub.endpoint)
    assert found.revision == COMMIT
    assert found.digest == f"hf:{COMMIT}"


@pytest.mark.parametrize(("scheme", "variable", "cache"), [
    ("hf", "HF_ENDPOINT", "HF_HOME"), ("modelscope", "MODELSCOPE_ENDPOINT", "MODELSCOPE_CACHE"),
])
def test_the_environments_endpoint_is_honoured(
    hub: LocalHub, tmp_path: Path, scheme: str, variable: str, cache: str
) -> None:
    program = (
        "import sys; from pathlib import Path; from kev_engine.models.sources import resolve\n"
        "print(resolve(sys.argv[1], Path(sys.argv[2])).origin)"
    )
    environment = {**os.environ, variable: hub.endpoint, cache: str(tmp_path / "cache"),
                   "MODELSCOPE_HOME": str(tmp_path / "modelscope")}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", program, f"{scheme}:{NAME}", str(tmp_path)], env=environment, capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{scheme}:{NAME}@")
    assert hub.sent(WEIGHTS) == 1


def test_the_one_file_is_preferred_to_shards_of_the_same_weights() -> None:
    files = dict.fromkeys(["config.json", WEIGHTS, "model-00001-of-00002.safetensors", "consolidated.safetensors"], 1)
    assert set(needed_files(files, "here")) == {"config.json", WEIGHTS}
