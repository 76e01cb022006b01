"""A load that is cancelled: it ends where its progress was told, nothing half-made is left, the next one is whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kev_engine.errors import LoadCancelled
from kev_engine.models.folder import WEIGHTS
from kev_engine.models.load import LoadedModel, load
from kev_engine.models.progress import Progress, silent
from kev_engine.models.sources import resolve
from tests.models.hub_server import local_hub, use_hub
from tests.models.tiny import tiny_folder
from tests.models.tiny_gguf import write_gguf

NAME = "owner/tiny"


def bring(spec: str, home: Path, progress: Progress = silent) -> LoadedModel:
    return load(resolve(spec, home, progress), progress=progress)


def stop_at(wanted: str, share: float) -> Progress:
    """A progress that cancels when this share of this stage is done."""

    def progress(stage: str, done: int, total: int) -> None:
        if stage == wanted and done >= share * total:
            raise LoadCancelled("it")

    return progress


@pytest.mark.parametrize(("kind", "stage", "share"), [
    ("hf", "download", 0.5), ("modelscope", "download", 0.5), ("gguf", "convert", 0), ("gguf", "convert", 0.5),
    ("gguf", "load", 0), ("folder", "load", 0), ("folder", "load", 0.5), ("hf", "download", 1),
])
def test_a_load_ends_where_it_is_cancelled_and_goes_on_the_next_time(
    kind: str, stage: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home, temporary = tiny_folder(tmp_path / "tiny"), tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with local_hub({NAME: folder}) as hub:
        use_hub(monkeypatch, hub, tmp_path / "hub")
        spec = {"folder": str(folder), "gguf": f"gguf:{write_gguf(tmp_path / 'tiny.gguf')}"}.get(kind, f"{kind}:{NAME}")
        with pytest.raises(LoadCancelled):
            bring(spec, home, stop_at(stage, share))
        assert list(temporary.iterdir()) == []
        left = [path.name for path in tmp_path.rglob("*") if ".part" in path.name or path.suffix == ".incomplete"]
        assert not left or kind == "modelscope", "what its client leaves it goes on from, as is seen below"
        asked = hub.sent(WEIGHTS)
        assert bring(spec, home).facts.num_layers == 2
        if kind in ("hf", "modelscope"):
            assert asked == 1, "the client took it for a failure and tried again"
            assert share == 1 or kind == "hf" or WEIGHTS in hub.resumed
