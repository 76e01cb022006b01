from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kev_engine.errors import ModelError, ModelIncomplete, ModelNotFound, ModelUnsupported
from kev_engine.models.folder import INDEX, WEIGHTS, folder_digest, model_files
from tests.models.tiny import tiny_folder, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("whole") / "tiny")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "tiny"))


def shard(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    tiny_model("llama").save_pretrained(folder, max_shard_size="40KB")


def test_a_whole_folder_counts_its_weights(folder: Path) -> None:
    files = model_files(folder)
    assert files.weights == (folder / WEIGHTS,)
    assert files.num_weights == sum(weight.numel() for weight in tiny_model("llama").parameters())


def test_shards_are_found_through_the_index(folder: Path) -> None:
    count = model_files(folder).num_weights
    shard(folder)
    files = model_files(folder)
    assert len(files.weights) > 1
    assert files.num_weights == count


def pickle_only(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def only_gguf(folder: Path) -> None:
    no_config(folder)
    (folder / "a.gguf").write_bytes(b"GGUF")


def no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut_weights(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-10])


def lfs_pointer(folder: Path) -> None:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")


def empty_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"")


def missing_shard(folder: Path) -> None:
    shard(folder)
    next(folder.glob("model-00002-of-*.safetensors")).unlink()


def escaping_shard(folder: Path) -> None:
    shard(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))


def spoilt_index(folder: Path) -> None:
    shard(folder)
    (folder / INDEX).write_text("{")


@pytest.mark.parametrize(("damage", "error", "words"), [
    (shutil.rmtree, ModelNotFound, "there is no folder"),
    (pickle_only, ModelUnsupported, "pytorch_model.bin"),
    (no_config, ModelIncomplete, "no config.json"),
    (only_gguf, ModelIncomplete, "use gguf:"),
    (no_weights, ModelIncomplete, "neither model.safetensors nor"),
    (no_tokenizer, ModelIncomplete, "no tokenizer"),
    (cut_weights, ModelIncomplete, "bytes of"),
    (lfs_pointer, ModelIncomplete, "git lfs pull"),
    (empty_weights, ModelIncomplete, "not a safetensors file"),
    (missing_shard, ModelIncomplete, "first model-00002-of"),
    (escaping_shard, ModelIncomplete, "outside of the folder"),
    (spoilt_index, ModelIncomplete, "cannot be read"),
])
def test_what_is_wrong_is_said_in_one_sentence(
    folder: Path, damage: Callable[[Path], None], error: type[ModelError], words: str
) -> None:
    damage(folder)
    with pytest.raises(error, match=words) as raised:
        model_files(folder)
    sentence = str(raised.value)
    assert sentence.endswith(".")
    assert ";" in sentence or ", or" in sentence, "the way out is missing"
    assert "\n" not in sentence


def test_the_digest_is_of_the_content(whole: Path, folder: Path) -> None:
    first = folder_digest(whole, model_files(whole))
    assert folder_digest(folder, model_files(folder)) == first
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(folder)
    with_template = folder_digest(folder, model_files(folder))
    assert with_template != first
    tiny_model("llama", seed=1).save_pretrained(folder)
    assert folder_digest(folder, model_files(folder)) not in {first, with_template}
