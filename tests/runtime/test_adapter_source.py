"""Adapters from both hubs through their real clients, against a server on this machine; and from loose files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kev_engine.adapters.files import CONFIG, PICKLE, WEIGHTS, AdapterFiles
from kev_engine.errors import AdapterRefused, InvalidField
from kev_engine.models.progress import Progress, silent
from kev_engine.runtime.adapter_source import read_source
from tests.models.hub_server import COMMIT, LocalHub, local_hub

NAME = "owner/tiny-lora"
DEMO = Path(__file__).parents[2] / "assets" / "adapters" / "json"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What people push beside an adapter: a model card, a tokenizer, a training checkpoint, pickled arguments."""
    folder = tmp_path / "repository"
    (folder / "checkpoint-100").mkdir(parents=True)
    for file in (CONFIG, WEIGHTS):
        (folder / file).write_bytes((DEMO / file).read_bytes())
    for file in ("README.md", "tokenizer.json", "training_args.bin", "checkpoint-100/adapter_model.safetensors"):
        (folder / file).write_text("more")
    return folder


@dataclass(frozen=True)
class Hub:
    server: LocalHub
    scheme: str

    def read(
        self, name: str = NAME, revision: str = "", progress: Progress = silent, max_bytes: int = 2**31
    ) -> AdapterFiles:
        spec = f"{self.scheme}:{name}" + (f"@{revision}" if revision else "")
        return read_source(spec, "mine", progress, max_bytes)


@pytest.fixture(params=["hf", "modelscope"])
def hub(
    request: pytest.FixtureRequest, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("modelscope_hub._download_control._DownloadControl.sleep", lambda self, seconds: None)
    with local_hub({NAME: repository}) as server:
        template = f"{server.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
        for variable, value in (("ENDPOINT", server.endpoint), ("CACHE", tmp_path / "ms"), ("HOME", tmp_path / "home")):
            monkeypatch.setenv(f"MODELSCOPE_{variable}", str(value))
        yield Hub(server, request.param)


def test_only_configuration_and_safetensors_are_fetched_and_the_content_is_that_of_the_folder(hub: Hub) -> None:
    assert hub.read() == read_source(DEMO, "mine")
    for file in ("README.md", "tokenizer.json", "training_args.bin"):
        assert hub.server.sent(file) == 0
    assert hub.server.sent(WEIGHTS) == 1
    assert hub.read() == read_source(DEMO, "mine")
    assert hub.server.sent(WEIGHTS) == 1


def test_a_revision_is_honoured(hub: Hub) -> None:
    revision = COMMIT if hub.scheme == "hf" else "master"
    assert hub.read(revision=revision) == read_source(DEMO, "mine")
    with pytest.raises(AdapterRefused, match="v9") as caught:
        hub.read(revision="v9")
    assert caught.value.kind == "hub"


def test_a_bare_name_is_of_the_hub_that_was_chosen(hub: Hub) -> None:
    chosen = {"hf": "huggingface", "modelscope": "modelscope"}[hub.scheme]
    assert read_source(NAME, "mine", hub=chosen) == read_source(DEMO, "mine")


def test_progress_counts_the_bytes(hub: Hub) -> None:
    seen: list[tuple[str, int, int]] = []
    hub.read(progress=lambda *step: seen.append(step))
    total = sum((DEMO / file).stat().st_size for file in (CONFIG, WEIGHTS))
    assert seen[-1] == ("download", total, total)


def test_what_is_over_the_limit_is_refused_before_it_is_sent(hub: Hub) -> None:
    size = (DEMO / WEIGHTS).stat().st_size
    with pytest.raises(AdapterRefused, match=f"larger than the limit of {size - 1:,} bytes") as caught:
        hub.read(max_bytes=size - 1)
    assert caught.value.kind == "too_large"
    assert hub.server.sent(WEIGHTS) == 0
    hub.read(max_bytes=size)


@pytest.mark.parametrize(("file", "kind"), [(CONFIG, "missing"), (WEIGHTS, "pickle")])
def test_a_repository_without_its_files_is_refused_before_anything_is_sent(
    hub: Hub, repository: Path, file: str, kind: str
) -> None:
    (repository / PICKLE).write_bytes(b"a pickle")
    (repository / file).unlink()
    with pytest.raises(AdapterRefused) as caught:
        hub.read()
    assert caught.value.kind == kind
    assert NAME in str(caught.value)
    assert hub.server.sent(".json") == hub.server.sent(PICKLE) == 0


def test_an_unknown_repository_and_a_hub_that_is_down_are_told_apart(hub: Hub) -> None:
    with pytest.raises(AdapterRefused, match=r"there is no repository .*owner/other"):
        hub.read("owner/other")
    hub.server.failure = "down"
    with pytest.raises(AdapterRefused, match=f"does not answer for {NAME}") as caught:
        hub.read()
    assert caught.value.kind == "hub"
    assert not str(caught.value).endswith("..")


def test_a_gated_repository_names_the_way_in(hub: Hub) -> None:
    if hub.scheme != "hf":
        pytest.skip("ModelScope answers for a gated repository as for an unknown one")
    hub.server.failure = "gated"
    with pytest.raises(AdapterRefused, match="HF_TOKEN"):
        hub.read()


def test_a_broken_download_goes_on_the_next_time(hub: Hub) -> None:
    hub.server.failure = "cut"
    with pytest.raises(AdapterRefused, match="broke off"):
        hub.read()
    hub.server.failure = None
    assert hub.read() == read_source(DEMO, "mine")


def test_a_whole_copy_serves_while_the_hub_is_down(hub: Hub) -> None:
    first = hub.read()
    hub.server.failure = "down"
    assert hub.read() == first


@pytest.mark.parametrize("name", ["tiny", "../..", "a/b/c", "a/b@", "owner/..", "a b/c", ""])
def test_a_name_that_no_hub_could_have_is_refused_without_asking(hub: Hub, name: str) -> None:
    with pytest.raises(InvalidField, match="owner/name"):
        hub.read(name)
    assert hub.server.requests == []


def test_a_link_planted_in_the_cache_may_not_lead_out_of_the_repository(hub: Hub, tmp_path: Path) -> None:
    hub.read()
    config = next(path for path in tmp_path.rglob(CONFIG) if "repository" not in path.parts)
    secret = tmp_path / "secret.json"
    secret.write_text(config.read_text())
    config.unlink()
    config.symlink_to(secret)
    hub.server.failure = "down"
    with pytest.raises(AdapterRefused) as caught:
        hub.read()
    assert caught.value.kind == "link"


def test_loose_files_are_read_wherever_they_lie(tmp_path: Path) -> None:
    places = []
    for folder, file in (("one", WEIGHTS), ("two", CONFIG)):
        (tmp_path / folder).mkdir()
        places.append(tmp_path / folder / file)
        places[-1].write_bytes((DEMO / file).read_bytes())
    assert read_source(places, "mine") == read_source(DEMO, "mine")
    pickle = tmp_path / PICKLE
    pickle.write_bytes(b"a pickle")
    for files, kind in (
        ([], "upload"), (places[:1], "upload"), ([places[1]] * 2, "upload"), ([*places, pickle], None),
        ([*places, tmp_path / "README.md"], "upload"), ([pickle], "pickle"), ([places[1], pickle], "pickle"),
    ):
        if kind is None:
            assert read_source(files, "mine") == read_source(DEMO, "mine")
            continue
        with pytest.raises(AdapterRefused) as caught:
            read_source(files, "mine")
        assert caught.value.kind == kind, files


def test_a_name_without_its_hub_is_told_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(AdapterRefused, match=r"'owner/tiny-lora' is no folder.*hf:owner/name") as caught:
        read_source("owner/tiny-lora", "mine")
    assert caught.value.kind == "no_source"
    assert json.loads(read_source(str(DEMO), "mine").config)["peft_type"] == "LORA"
