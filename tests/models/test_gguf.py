from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers

from kev_engine.errors import ModelIncomplete, ModelUnsupported, NotEnoughSpace
from kev_engine.models import gguf
from kev_engine.models.load import load
from kev_engine.models.progress import silent
from kev_engine.models.sources import resolve
from tests.models.tiny import tiny_tokenizer
from tests.models.tiny_gguf import gguf_model, write_gguf


def test_converted_model_gives_the_logits_and_tokens_of_the_original(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    loaded = load(resolve(f"gguf:{file}", tmp_path))
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, gguf_model()(ids).logits)
    text = "the dog  answers\n\tfox"
    assert loaded.tokenizer.encode(text) == tiny_tokenizer().encode(text)
    assert loaded.tokenizer.chat_template == tiny_tokenizer().chat_template
    assert loaded.facts.stop_token_ids == {2}
    assert loaded.warnings == ()


def test_a_conversion_that_lacks_a_weight_is_never_half_used(tmp_path: Path) -> None:
    converted = resolve(f"gguf:{write_gguf(tmp_path / 'tiny.gguf')}", tmp_path)
    weights = load_file(converted.path / "model.safetensors")
    name = next(name for name in weights if "q_proj" in name)
    rest = {key: weight.clone() for key, weight in weights.items() if key != name}
    save_file(rest, converted.path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelIncomplete, match=name):
        load(converted)


def test_second_start_uses_the_conversion(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    first = resolve(f"gguf:{file}", tmp_path)
    stages: list[str] = []
    assert resolve(f"gguf:{file}", tmp_path, lambda stage, done, total: stages.append(stage)) == first
    assert stages == []


@pytest.mark.parametrize("pre", [None, "some-new-split"])
def test_unknown_pre_tokenizer_is_warned_of_and_compared(tmp_path: Path, pre: str | None) -> None:
    """BR-158: a file that does not say how text is cut gives a warning that names the field."""
    file = write_gguf(tmp_path / "tiny.gguf", pre=pre)
    warnings = load(resolve(f"gguf:{file}", tmp_path)).warnings
    assert len(warnings) == 1
    assert "tokenizer.ggml.pre" in warnings[0]
    assert "known ways to cut text give other tokens" in warnings[0]
    # The warning belongs to the conversion: a later start gives it again.
    assert resolve(f"gguf:{file}", tmp_path).warnings == warnings


def test_unknown_pre_tokenizer_is_compared_with_the_original_beside_it(tmp_path: Path) -> None:
    """BR-158: where the original tokenizer lies beside the file, it is what the probe text is compared with."""
    file = write_gguf(tmp_path / "tiny.gguf", pre=None)
    tiny_tokenizer().save_pretrained(tmp_path)
    header = gguf.read_header(file)
    tokenizer = gguf.read_tokenizer(file, header)
    same = gguf.split_warning(file, header, tokenizer)
    assert same is not None
    assert "gives the tokens of the tokenizer.json" in same

    original = tiny_tokenizer()
    original.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("", behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    original.save_pretrained(tmp_path)
    other = gguf.split_warning(file, header, gguf.read_tokenizer(file, header))
    assert other is not None
    assert "other tokens than the tokenizer.json beside it, from token" in other


@pytest.mark.parametrize("pre", sorted(gguf.DIGITS_APART))
def test_digits_are_set_apart_before_the_rest_is_cut(tmp_path: Path, pre: str) -> None:
    """Two spaces before a digit are one piece in such vocabularies; GPT-2's bare pattern gives the second away."""
    file = write_gguf(tmp_path / "tiny.gguf", pre=pre)
    tokenizer = gguf.read_tokenizer(file, gguf.read_header(file))
    pieces = [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  2024 b")]
    assert pieces == ["a", "ĠĠ", "2", "0", "2", "4", "Ġb"]


def test_a_special_token_is_one_id_though_the_file_marks_none(tmp_path: Path) -> None:
    """BR-160: text shaped like a special token is that token, not its letters."""
    file = write_gguf(tmp_path / "tiny.gguf", with_token_types=False)
    tokenizer = load(resolve(f"gguf:{file}", tmp_path)).tokenizer
    for token, token_id in (("<|endoftext|>", 0), ("<|im_start|>", 1), ("<|im_end|>", 2)):
        assert tokenizer.encode(token) == [token_id]


@pytest.mark.parametrize("keep", [0.0, 0.05, 0.5, 0.99])
def test_a_cut_off_file_is_incomplete(tmp_path: Path, keep: float) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ModelIncomplete, match="fetch it again"):
        resolve(f"gguf:{file}", tmp_path)
    assert not (tmp_path / "models").exists()


def test_too_little_memory_is_said_before_a_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf, "available_bytes", lambda: 1000)
    with pytest.raises(NotEnoughSpace, match=r"the conversion of tiny\.gguf"):
        resolve(f"gguf:{file}", tmp_path)


def test_a_file_of_another_kind_is_incomplete(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_text("not a model")
    with pytest.raises(ModelIncomplete, match="cannot be read as a GGUF file"):
        resolve(f"gguf:{file}", tmp_path)


def test_an_architecture_transformers_cannot_read_is_unsupported(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", architecture="unheard")
    with pytest.raises(ModelUnsupported, match="architecture 'unheard'"):
        resolve(f"gguf:{file}", tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir() if not path.name.endswith(".lock")] == []


def test_progress_of_a_conversion_is_told(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    seen: list[tuple[str, int, int]] = []
    (tmp_path / "out").mkdir()
    gguf.convert(file, tmp_path / "out", lambda *step: seen.append(step))
    tensors = 2 + 9 * 2
    assert ("convert", tensors, tensors) in seen
    assert silent("convert", 0, 0) is None
