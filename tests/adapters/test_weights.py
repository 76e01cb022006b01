"""What is read from disk, and every reason for which an adapter is refused."""

import json
import os
import re
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.reasons import REASONS, table
from kev_engine.adapters.settings import REFUSED
from kev_engine.adapters.weights import read
from kev_engine.errors import AdapterRefused
from tests.adapters.conftest import SaveAdapter, tiny, without_pefts_warnings

ROOT = Path(__file__).parents[2] / "kev_engine"
EXAMPLES = 3000 if os.environ.get("KEV_SOAK") else 150
Q = "base_model.model.model.layers.0.self_attn.q_proj"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


@pytest.fixture(scope="module")
def good(save_adapter: SaveAdapter) -> Path:
    return save_adapter("llama", r=4, target_modules=["q_proj", "down_proj"])


def changed(good: Path, into: Path, change: Change) -> Path:
    """A copy of a good adapter with its configuration and tensors changed."""
    config, tensors = json.loads((good / CONFIG).read_text()), load_file(good / WEIGHTS)
    change(config, tensors)
    (into / CONFIG).write_text(json.dumps(config))
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, into / WEIGHTS)
    return into


def setting(**keys: object) -> Change:
    return lambda config, tensors: config.update(keys)


def tensor(key: str, value: torch.Tensor | None) -> Change:
    def change(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if value is None:
            del tensors[key]
        else:
            tensors[key] = value

    return change


def first_value(value: float) -> Change:
    def change(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"{Q}.lora_A.weight"][0, 0] = value

    return change


def overflowing_scale(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    config["lora_alpha"] = 4e29
    tensors[f"{Q}.lora_B.weight"][0, 0] = 1e10


REFUSALS: list[tuple[str, Change, str]] = [
    ("another method", setting(peft_type="IA3"), "only LORA"),
    ("DoRA", setting(use_dora=True), "DoRA"),
    ("modules_to_save", setting(modules_to_save=["lm_head"]), "modules_to_save"),
    ("bias", setting(bias="lora_only"), "bias='none'"),
    ("lora_bias", setting(lora_bias=True), "lora_bias"),
    ("aLoRA", setting(alora_invocation_tokens=[1, 2]), "aLoRA"),
    ("target_parameters", setting(target_parameters=["experts.down_proj"]), "target_parameters"),
    ("layer_replication", setting(layer_replication=[[0, 2], [1, 3]]), "layer_replication"),
    ("token indices", setting(trainable_token_indices=[3]), "trainable_token_indices"),
    ("PiSSA", setting(init_lora_weights="pissa_niter_4"), "path_initial_model_for_weight_conversion"),
    ("OLoRA", setting(init_lora_weights="olora"), "path_initial_model_for_weight_conversion"),
    ("CorDA", setting(init_lora_weights="corda"), "path_initial_model_for_weight_conversion"),
    ("LoftQ", setting(init_lora_weights="loftq"), "path_initial_model_for_weight_conversion"),
    ("a key of tomorrow", setting(use_wonder_lora={"k": 1}), "'use_wonder_lora'"),
    ("rank 0", setting(r=0), "r in its configuration is 0"),
    ("rank true", setting(r=True), "whole number"),
    ("huge rank", setting(rank_pattern={"q_proj": 10**9}), "from 1 to 512"),
    ("alpha text", setting(lora_alpha="16"), "finite number"),
    ("rslora text", setting(use_rslora="yes"), "true or false"),
    ("patterns no table", setting(alpha_pattern=[1]), "a table of module patterns"),
    ("a broken pattern", setting(rank_pattern={"q_(proj": 4}), "a regular expression"),
    ("a broken regex", setting(target_modules="(q_proj"), "a regular expression"),
    ("an endless regex", setting(target_modules=r"(?:\w|\.|[a-z]|.)*\d\d"), "takes too long"),
    ("no targets", setting(target_modules=None), "target_modules"),
    ("targets of numbers", setting(target_modules=[1]), "a list of names"),
    ("targets that are not there", setting(target_modules=["query_key_value"]), "matches no module"),
    ("regex and layers", setting(target_modules=".*q_proj", layers_to_transform=[1]), "layers_to_transform"),
    ("layers that are text", setting(layers_to_transform=["1"]), "layer number"),
    ("weights outside of the targets", setting(layers_to_transform=[1]), "its configuration does not target it"),
    ("weights that are excluded", setting(exclude_modules=["q_proj"]), "its configuration does not target it"),
    ("rank in config", setting(r=8), "has rank 4 but its configuration says 8"),
    ("A alone", tensor(f"{Q}.lora_B.weight", None), "has lora_A but no lora_B"),
    ("B alone", tensor(f"{Q}.lora_A.weight", None), "has lora_B but no lora_A"),
    ("another base", tensor(f"{Q}.lora_A.weight", torch.zeros(4, 64)), r"\[4, 64\] but this model needs \[4, 48\]"),
    ("one dimension", tensor(f"{Q}.lora_A.weight", torch.zeros(192)), r"shape \[192\]"),
    ("empty", tensor(f"{Q}.lora_A.weight", torch.zeros(0, 48)), "has rank 0"),
    ("whole numbers", tensor(f"{Q}.lora_A.weight", torch.zeros(4, 48, dtype=torch.int8)), "not a 16-, 32- or 64-bit"),
    ("NaN", first_value(float("nan")), "not finite"),
    ("infinity", first_value(float("-inf")), "not finite"),
    ("beyond fp32", tensor(f"{Q}.lora_A.weight", torch.full((4, 48), 1e300, dtype=torch.float64)), "not finite"),
    ("its scale beyond fp32", overflowing_scale,
     r"lora_B times its scale is too large for this model's float32 \(its scale is 1e\+29\)"),
    ("a layer too many", tensor("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", torch.zeros(4, 48)),
     "is no module of this model"),
    ("a stray key", tensor("wonder.weight", torch.zeros(1)), "matches no module"),
    ("a magnitude vector", tensor(f"{Q}.lora_magnitude_vector", torch.zeros(48)), "matches no module"),
    ("an embedding that is not targeted",
     tensor("base_model.model.model.embed_tokens.lora_embedding_A", torch.zeros(4, 97)), "does not target it"),
    ("a Linear module adapted as an embedding", tensor(f"{Q}.lora_embedding_A", torch.zeros(4, 48)),
     "is for an embedding, which that module of this model is not"),
    ("an embedding adapted as a Linear module",
     tensor("base_model.model.model.embed_tokens.lora_A.weight", torch.zeros(4, 97)),
     "is for a Linear module, which that module of this model is not"),
    ("an embedding of its own", tensor("base_model.model.model.embed_tokens.weight", torch.zeros(97, 48)),
     "differs from this model's"),
    ("the same key twice", tensor("model.layers.0.self_attn.q_proj.lora_A.weight", torch.zeros(4, 48)), "twice"),
]


@pytest.mark.parametrize(("change", "reason"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_what_cannot_be_applied_exactly_is_refused_with_the_reason(llama, good, tmp_path, change, reason):
    with pytest.raises(AdapterRefused, match=reason) as caught:
        read(changed(good, tmp_path, change), llama, "mine")
    assert "'mine'" in str(caught.value)


def test_every_reason_has_its_use_and_every_refusal_its_reason():
    used = set(REFUSED)
    for file in [*(ROOT / "adapters").glob("*.py"), ROOT / "runtime" / "adapter_source.py"]:
        used |= set(re.findall(r'(?:refusal\([\w.]+, |wrong\()"(\w+)"', file.read_text()))
    assert used | {"unknown_key"} == REASONS.keys()


def test_the_page_has_the_reasons_of_the_code():
    page = (ROOT.parent / "docs" / "adapters.md").read_text(encoding="utf-8")
    assert table() in page, "docs/adapters.md is old: python -m kev_engine.adapters.reasons prints its table"


@pytest.mark.parametrize("case", ["BR-112", "BR-113", "BR-114", "BR-116", "BR-118", "CTL-11"])
def test_the_doctors_cases_of_scales_and_matches_are_read_right(llama, save_adapter, tmp_path, case):
    """What others scaled or matched wrongly (tests/doctor/cases), as PEFT writes it: the factor is the expected one."""
    path = ROOT.parent / "tests" / "doctor" / "cases" / f"{case}.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    facts, findings = given["batch"]["adapter"], given["expect"]["findings"]
    fields = {key: facts[key] for key in ("r", "lora_alpha", "use_rslora")}
    folder = save_adapter("llama", target_modules=["q_proj"], **fields)
    if facts["matched_modules"] == 0:
        tensors = {f"other.prefix.{key}": value for key, value in load_file(folder / WEIGHTS).items()}
        save_file(tensors, folder / WEIGHTS)
        with pytest.raises(AdapterRefused, match="is no module of this model"):
            read(folder, llama, "mine")
        return
    right = findings[0]["expected"] if findings else facts["given_scaling"]
    # A weight that a user sets multiplies the factor; there is none here.
    assert read(folder, llama, "mine").scales == (pytest.approx(right / facts.get("weight", 1)),)


def test_what_this_models_dtype_cannot_hold_is_refused(good, tmp_path):
    def enlarge(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"{Q}.lora_B.weight"][0, 0] = 40_000

    folder = changed(good, tmp_path, enlarge)
    read(folder, tiny("llama"), "mine")
    read(folder, tiny("llama").to(torch.bfloat16), "mine")
    with pytest.raises(AdapterRefused, match="too large for this model's float16"):
        read(folder, tiny("llama").to(torch.float16), "mine")


def test_a_good_adapter_as_it_is_read(llama, good):
    weights = read(good, llama, "mine")
    assert len(weights.pairs) == 6
    assert weights.untouched == ()
    assert (weights.ranks, weights.alphas, weights.scales, weights.dtype) == ((4,), (8.0,), (2.0,), "float32")
    pair = weights.pairs["model.layers.0.self_attn.q_proj"]
    stored = load_file(good / WEIGHTS)
    assert torch.equal(pair.a, stored[f"{Q}.lora_A.weight"])
    assert torch.equal(pair.b, stored[f"{Q}.lora_B.weight"])
    assert weights.num_bytes == sum(tensor.nbytes for tensor in stored.values())


def test_half_precision_is_kept_in_fp32(llama, good, tmp_path):
    def halve(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({key: tensor.to(torch.bfloat16) for key, tensor in tensors.items()})

    weights = read(changed(good, tmp_path, halve), llama, "mine")
    assert weights.dtype == "bfloat16"
    assert weights.pairs["model.layers.0.self_attn.q_proj"].a.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory is for CUDA")
def test_on_cuda_an_adapter_waits_in_pinned_memory(good):
    model = tiny("llama").cuda()
    weights = read(good, model, "mine")
    assert all(half.is_pinned() for pair in weights.pairs.values() for half in (pair.a, pair.b))
    pool = AdapterPool(model, 1)
    version = pool.add("a", weights)
    stack = pool.reside([version.adapter_id]).stacks["model.layers.0.self_attn.q_proj"]
    pair = weights.pairs["model.layers.0.self_attn.q_proj"]
    assert torch.equal(stack.a[:, : pair.rank].cpu(), pair.a.t())


def test_modules_without_weights_are_named_and_stay_as_in_the_base(llama, good, tmp_path):
    def forget(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        del tensors[f"{Q}.lora_A.weight"], tensors[f"{Q}.lora_B.weight"]

    assert read(changed(good, tmp_path, forget), llama, "mine").untouched == ("model.layers.0.self_attn.q_proj",)


def test_pefts_own_copy_of_an_adapted_embedding_is_let_pass(llama, save_adapter, tmp_path):
    folder = save_adapter("llama", r=2, target_modules=["embed_tokens"])
    plain = read(folder, llama, "mine")
    copy = tensor("base_model.model.model.embed_tokens.base_layer.weight", llama.model.embed_tokens.weight.clone())
    assert read(changed(folder, tmp_path, copy), llama, "mine").pairs.keys() == plain.pairs.keys()
    other = tensor("base_model.model.model.embed_tokens.base_layer.weight", llama.model.embed_tokens.weight + 1)
    with pytest.raises(AdapterRefused, match="differs from this model's"):
        read(changed(folder, tmp_path, other), llama, "mine")


def test_a_scaled_embedding_scales_its_adapter_as_peft_does(tmp_path):
    from peft import LoraConfig, get_peft_model

    from kev_engine.adapters.router import attach
    from tests.models.tiny import tiny_model

    with without_pefts_warnings(), torch.no_grad():
        wrapped = get_peft_model(tiny_model("gemma3"), LoraConfig(r=3, target_modules=["embed_tokens"]))
        for key, parameter in wrapped.named_parameters():
            if "lora_" in key:
                parameter.normal_(std=0.3)
        wrapped.save_pretrained(tmp_path, save_embedding_layers=False)
    model, tokens = tiny_model("gemma3"), torch.tensor([[1, 2, 3, 4]])
    assert float(model.model.embed_tokens.embed_scale) > 2
    pool = AdapterPool(model, 1)
    adapter_id = pool.load("a", tmp_path).adapter_id
    with torch.inference_mode():
        with attach(model, pool).step([adapter_id] * 4):
            mine = model(input_ids=tokens, use_cache=False).logits
        base, wanted = model(input_ids=tokens).logits, wrapped.eval()(input_ids=tokens).logits
    assert (mine - wanted).abs().max() <= 1e-4
    assert (mine - base).abs().max() > 1e-2


def test_an_exact_copy_of_the_bases_embedding_is_let_pass(llama, good, tmp_path):
    copy = tensor("base_model.model.lm_head.base_layer.weight", llama.lm_head.weight.detach().clone())
    assert len(read(changed(good, tmp_path, copy), llama, "mine").pairs) == 6


def test_conv1d_modules_are_adapted_whatever_fan_in_fan_out_says(tmp_path):
    from peft import LoraConfig, get_peft_model

    def gpt2() -> GPT2LMHeadModel:
        torch.manual_seed(1)
        return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=2, n_positions=32)).eval()

    with without_pefts_warnings():
        wrapped = get_peft_model(gpt2(), LoraConfig(r=3, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True))
        torch.nn.init.normal_(wrapped.base_model.model.transformer.h[0].attn.c_attn.lora_B["default"].weight)
        wrapped.save_pretrained(tmp_path, save_embedding_layers=False)
    from kev_engine.adapters.router import attach

    model, tokens = gpt2(), torch.tensor([[1, 2, 3, 4]])
    pool = AdapterPool(model, 1)
    adapter_id = pool.load("a", tmp_path).adapter_id
    with torch.inference_mode():
        with attach(model, pool).step([adapter_id] * 4):
            mine = model(input_ids=tokens).logits
        base, wanted = model(input_ids=tokens).logits, wrapped.eval()(input_ids=tokens).logits
    assert (mine - wanted).abs().max() <= 1e-4
    assert (mine - base).abs().max() > 1e-2


def test_the_version_is_that_of_the_content(llama, good, tmp_path):
    (tmp_path / "same").mkdir()
    (tmp_path / "scaled").mkdir()
    (tmp_path / "trained").mkdir()
    version = read(good, llama, "mine").version
    same = changed(good, tmp_path / "same", lambda config, tensors: None)
    (same / WEIGHTS).write_bytes((good / WEIGHTS).read_bytes())
    assert read(same, llama, "yours").version == version
    assert read(changed(good, tmp_path / "scaled", setting(lora_alpha=9)), llama, "mine").version != version
    assert read(changed(good, tmp_path / "trained", first_value(0.5)), llama, "mine").version != version


# Files and archives ------------------------------------------------------------------------------------------------


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return path


@pytest.mark.parametrize("folder", ["", "my adapter/", "a/b/"])
def test_a_zip_is_read_like_its_folder(llama, good, tmp_path, folder):
    members = {folder + name: (good / name).read_bytes() for name in (CONFIG, WEIGHTS)} | {"README.md": b"hello"}
    assert read(archive(tmp_path / "a.zip", members), llama, "m").version == read(good, llama, "m").version


def test_a_pickle_is_never_opened_and_the_refusal_gives_a_command_that_converts_it(llama, good, tmp_path, monkeypatch):
    import subprocess
    import sys

    (tmp_path / CONFIG).write_bytes((good / CONFIG).read_bytes())
    torch.save(load_file(good / WEIGHTS), tmp_path / "adapter_model.bin")
    with pytest.raises(AdapterRefused, match="pickle") as caught:
        read(tmp_path, llama, "mine")
    command = caught.value.reason.split("trust it: ")[1].replace("python ", f"{sys.executable} ", 1)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert len(read(tmp_path, llama, "mine").pairs) == 6


def test_folders_that_are_no_adapter(llama, good, tmp_path):
    for path, reason in ((tmp_path / "none", "is no folder, no .zip"), (tmp_path, f"has no {CONFIG}")):
        with pytest.raises(AdapterRefused, match=reason):
            read(path, llama, "mine")
    (tmp_path / CONFIG).write_bytes((good / CONFIG).read_bytes())
    with pytest.raises(AdapterRefused, match=f"has no {WEIGHTS}"):
        read(tmp_path, llama, "mine")
    (tmp_path / WEIGHTS).symlink_to(good / WEIGHTS)
    with pytest.raises(AdapterRefused, match="link out of its folder"):
        read(tmp_path, llama, "mine")
    (tmp_path / WEIGHTS).unlink()
    os.mkfifo(tmp_path / WEIGHTS)
    with pytest.raises(AdapterRefused, match="not a regular file"):
        read(tmp_path, llama, "mine")


def test_sizes_over_the_limit(llama, good, tmp_path):
    size = (good / WEIGHTS).stat().st_size
    read(good, llama, "mine", max_bytes=size)
    members = {name: (good / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    zipped = archive(tmp_path / "a.zip", members)
    read(zipped, llama, "mine", max_bytes=size)
    for path in (good, zipped):
        with pytest.raises(AdapterRefused, match="limit"):
            read(path, llama, "mine", max_bytes=size - 1)


def test_a_zip_bomb_is_cut_at_the_limit_whatever_size_it_declares(llama, good, tmp_path):
    bomb = archive(tmp_path / "a.zip", {CONFIG: (good / CONFIG).read_bytes(), WEIGHTS: bytes(50_000_000)})
    assert bomb.stat().st_size < 100_000
    with pytest.raises(AdapterRefused, match="limit"):
        read(bomb, llama, "mine", max_bytes=1_000_000)
    lying = bytearray(bomb.read_bytes())
    true, small = (50_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    assert lying.count(true) == 2
    bomb.write_bytes(lying.replace(true, small))
    with pytest.raises(AdapterRefused):
        read(bomb, llama, "mine", max_bytes=1_000_000)


def test_archives_that_point_outside_hold_links_or_two_adapters(llama, good, tmp_path):
    config, weights = (good / CONFIG).read_bytes(), (good / WEIGHTS).read_bytes()
    for member, reason in (
        ("../evil.txt", "outside"), ("/etc/evil", "outside"), ("..\\evil", "outside"), ("C:/evil", "outside"),
        (f"other/{CONFIG}", "several adapters"),
    ):
        path = archive(tmp_path / "a.zip", {CONFIG: config, WEIGHTS: weights, member: b"x"})
        with pytest.raises(AdapterRefused, match=reason):
            read(path, llama, "mine")
    link = zipfile.ZipInfo(WEIGHTS)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(CONFIG, config)
        made.writestr(link, "/etc/passwd")
    with pytest.raises(AdapterRefused, match="a link"):
        read(tmp_path / "a.zip", llama, "mine")
    with pytest.raises(AdapterRefused, match="members"):
        read(archive(tmp_path / "a.zip", {f"{n}": b"" for n in range(1001)}), llama, "mine")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(AdapterRefused, match="cannot be read"):
        read(tmp_path / "a.zip", llama, "mine")


# Fuzz --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arena(tmp_path_factory, good) -> tuple[Path, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("fuzz")
    raw = {name: (good / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    raw["a.zip"] = archive(folder / "a.zip", dict(raw)).read_bytes()
    return folder, raw


@pytest.fixture(scope="module")
def pool(llama, good) -> AdapterPool:
    """With a good adapter resident under the name that every damaged file asks for."""
    pool = AdapterPool(llama, 2)
    pool.reside([pool.load("mine", good).adapter_id])
    pool.hold(pool.resolve("mine"))
    return pool


def state_of(pool: AdapterPool) -> tuple[object, ...]:
    bank = pool.reside([pool.resolve("mine").adapter_id])
    return pool.list(), bank.num_bytes, dict(bank.columns), len(pool._entries)


def cut_and_flip(raw: bytes, seed: int) -> bytes:
    """The bytes with some flipped, cut out, doubled or written over, most of it near the front where headers are."""
    random, data = np.random.default_rng(seed), bytearray(raw)
    for _ in range(int(random.integers(1, 5))):
        at = int(random.integers(0, min(len(data), 600 if random.random() < 0.7 else len(data)) or 1))
        match int(random.integers(0, 5)):
            case 0:
                data[at : at + 1] = bytes([int(random.integers(0, 256))])
            case 1:
                del data[at:]
            case 2:
                del data[at : at + int(random.integers(1, 40))]
            case 3:
                data[at:at] = data[at : at + int(random.integers(1, 40))]
            case _:
                data[at : at + 8] = random.bytes(8)
    return bytes(data)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=not os.environ.get("KEV_SOAK"),
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(which=st.sampled_from([CONFIG, WEIGHTS, "a.zip"]), seed=st.integers(0, 2**32))
def test_damaged_files_are_refused_or_read_whole(pool, good, arena, which, seed):
    """Refused: the pool and its memory are as before. Read: every number is finite."""
    folder, raw = arena
    for name, data in raw.items():
        (folder / name).write_bytes(cut_and_flip(data, seed) if name == which else data)
    before = state_of(pool)
    try:
        version = pool.load("mine", folder / "a.zip" if which == "a.zip" else folder, max_bytes=1 << 20)
    except AdapterRefused:
        assert state_of(pool) == before
        return
    finally:
        pool.check()
    assert all(pair.a.isfinite().all() and pair.b.isfinite().all() for pair in version.weights.pairs.values())
    pool.load("mine", good)
    assert state_of(pool) == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["q_proj", "(a|b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=5,
)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=not os.environ.get("KEV_SOAK"),
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_under_any_key_is_refused_or_honoured(llama, arena, data):
    folder, raw = arena
    config = json.loads(raw[CONFIG])
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[key] = data.draw(json_values)
    (folder / CONFIG).write_text(json.dumps(config))
    (folder / WEIGHTS).write_bytes(raw[WEIGHTS])
    try:
        read(folder, llama, "mine")
    except AdapterRefused:
        return
