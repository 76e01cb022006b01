from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration, SiglipVisionConfig

from kev_engine.errors import ModelIncomplete, ModelUnsupported, NotEnoughSpace
from kev_engine.models import load as load_module
from kev_engine.models.folder import WEIGHTS
from kev_engine.models.load import load
from kev_engine.models.sources import resolve
from tests.models.tiny import FAMILIES, NEEDY_FAMILIES, WINDOW, tiny_config, tiny_folder, tiny_model, tiny_tokenizer

NEEDS = {
    "mistral": {"window"}, "gemma3": {"window"}, "cohere2": {"window"}, "gemma2": {"window", "softcap"},
    "gpt_oss": {"window", "sinks"},
}
WINDOWS = {"mistral": (WINDOW, WINDOW)} | dict.fromkeys(("gemma3", "cohere2", "gemma2", "gpt_oss"), (WINDOW, None))


@pytest.mark.parametrize("family", [*FAMILIES, *NEEDY_FAMILIES])
def test_facts_are_what_the_layers_call(tmp_path: Path, family: str) -> None:
    loaded = load(resolve(str(tiny_folder(tmp_path / family, family)), tmp_path))
    facts = loaded.facts
    assert (facts.num_layers, facts.num_heads, facts.num_kv_heads, facts.head_dim) == (2, 4, 2, 8)
    assert (facts.vocab_size, facts.max_context) == (320, 512)
    assert facts.layer_windows == WINDOWS.get(family, (None, None))
    assert facts.needs == NEEDS.get(family, set())
    assert (facts.softcap is not None) == ("softcap" in facts.needs)
    assert facts.rope == "default"
    assert facts.stop_token_ids == {2}
    assert facts.pad_token_id == 0
    assert loaded.warnings == ()


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_model_is_the_saved_one_and_ready(tmp_path: Path, family: str) -> None:
    loaded = load(resolve(str(tiny_folder(tmp_path / family, family)), tmp_path))
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, tiny_model(family)(ids).logits)
    assert loaded.model.config._attn_implementation == "eager"
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.seconds > 0


def test_the_dtype_asked_for_is_the_models(tmp_path: Path) -> None:
    loaded = load(resolve(str(tiny_folder(tmp_path / "m")), tmp_path), dtype=torch.bfloat16)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.facts.dtype == torch.bfloat16


def test_a_missing_weight_is_never_filled_with_noise(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    weights = load_file(folder / WEIGHTS)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ModelIncomplete, match=r"weights .* are missing .*1, first model\.layers\.1\.mlp\.up_proj"):
        load(resolve(str(folder), tmp_path))


def test_a_weight_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    weights = load_file(folder / WEIGHTS)
    name = "model.layers.0.mlp.up_proj.weight"
    weights[name] = weights[name][:-1].clone()
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ModelIncomplete, match="weights"):
        load(resolve(str(folder), tmp_path))


def test_a_weight_nobody_asks_for_is_told(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    weights = load_file(folder / WEIGHTS) | {"model.layers.9.extra": torch.zeros(2)}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    warnings = load(resolve(str(folder), tmp_path)).warnings
    assert warnings == ("weights in the files of m belong to no layer (1, first model.layers.9.extra).",)


def test_a_model_that_cannot_be_packed_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / WEIGHTS).write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelUnsupported, match="'dynamic'"):
        load(resolve(str(folder), tmp_path))


@pytest.mark.parametrize("config", [
    {"model_type": "unheard_of"},
    {"model_type": "own", "auto_map": {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}},
])
def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path, config: dict[str, object]) -> None:
    folder = tiny_folder(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ModelUnsupported, match="without running code"):
        load(resolve(str(folder), tmp_path))
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelIncomplete, match="the tokenizer of m cannot be read"):
        load(resolve(str(folder), tmp_path))


def test_too_little_memory_is_said_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = resolve(str(tiny_folder(tmp_path / "m")), tmp_path)
    needed = 4 * sum(weight.numel() for weight in tiny_model("llama").parameters())
    monkeypatch.setattr(load_module, "available_bytes", lambda: needed - 1)
    with pytest.raises(NotEnoughSpace) as raised:
        load(resolved)
    assert (raised.value.needed_bytes, raised.value.free_bytes) == (needed, needed - 1)
    monkeypatch.setattr(load_module, "available_bytes", lambda: needed)
    load(resolved)
    monkeypatch.setattr(load_module, "available_bytes", lambda: None)
    load(resolved)


def test_the_text_part_of_a_multimodal_model_is_loaded(tmp_path: Path) -> None:
    """Gemma-3 from 4B on comes with a vision tower; its text part answers as the text model alone does."""
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = Gemma3Config(
        text_config=tiny_config("gemma3").to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=1,
        boi_token_index=3, eoi_token_index=4, image_token_index=5,
    )
    torch.manual_seed(0)
    both = Gemma3ForConditionalGeneration(config).eval()
    both.save_pretrained(tmp_path / "m")
    tiny_tokenizer().save_pretrained(tmp_path / "m")
    loaded = load(resolve(str(tmp_path / "m"), tmp_path))
    assert loaded.facts.model_type == "gemma3_text"
    assert loaded.warnings == ()
    ids = torch.arange(10, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(ids).logits, both(input_ids=ids).logits, atol=1e-5, rtol=0)


def test_loading_prints_nothing_and_asks_no_hub(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m")
    program = (
        "import socket, sys; from pathlib import Path\n"
        "def refuse(*args): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = refuse\n"
        "from kev_engine.models.load import load; from kev_engine.models.sources import resolve\n"
        "load(resolve(sys.argv[1], Path(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(folder), str(tmp_path)], capture_output=True, text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_progress_of_the_weights_is_told(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    load(resolve(str(tiny_folder(tmp_path / "m")), tmp_path), progress=lambda *step: seen.append(step))
    assert seen
    assert {stage for stage, _, _ in seen} == {"load"}
    assert seen[-1][1] == seen[-1][2]


def test_golden_generate_equals_a_plain_transformers_load(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "m", "qwen3")
    loaded = load(resolve(str(folder), tmp_path))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    ids = loaded.tokenizer("the quick brown fox", return_tensors="pt")
    ours = loaded.model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert torch.equal(ours, plain.generate(**ids, max_new_tokens=12, do_sample=False))
