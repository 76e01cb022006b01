"""Names, versions, holds and residency."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from kev_engine.adapters.pool import BASE, AdapterPool
from kev_engine.adapters.router import attach
from kev_engine.errors import AdapterRefused, InvalidField, UnknownAdapter
from tests.adapters.conftest import SaveAdapter, peft_logits, tiny
from tests.adapters.test_router import packed_logits, tokens_of

NUM_ADAPTERS = 50


@pytest.fixture(scope="module")
def folders(save_adapter: SaveAdapter) -> list[Path]:
    """Six adapters of different ranks and targets."""
    shapes = [(2, "q_proj"), (4, "q_proj v_proj"), (8, "down_proj"), (20, "q_proj"), (3, "o_proj"), (8, "v_proj")]
    return [
        save_adapter("llama", seed=100 + k, r=rank, target_modules=targets.split())
        for k, (rank, targets) in enumerate(shapes)
    ]


def test_a_name_means_the_base_a_version_or_an_error(llama, folders):
    pool = AdapterPool(llama, 2)
    pirate = pool.load("pirate", folders[0])
    assert pool.resolve(None) is BASE
    assert (BASE.adapter_id, BASE.digest, BASE.version) == (0, "", None)
    assert pool.resolve("pirate") is pirate
    assert pirate.version == pirate.digest[:12]
    with pytest.raises(UnknownAdapter, match="did you mean 'pirate'"):
        pool.resolve("pirat")
    with pytest.raises(UnknownAdapter):
        pool.acquire("")
    with pytest.raises(UnknownAdapter):
        pool.unload("terse")
    for name in ("", " pirate"):
        with pytest.raises(InvalidField, match="adapter name"):
            pool.load(name, folders[0])
    with pytest.raises(InvalidField, match="adapter_pool_size"):
        AdapterPool(llama, 0)


def test_new_content_under_an_old_name_is_a_new_version_and_runs_keep_the_old_one(llama, folders):
    pool = AdapterPool(llama, 2)
    router = attach(llama, pool)
    tokens = tokens_of(1, 6)
    pool.load("mine", folders[0])
    old = pool.acquire("mine")
    new = pool.load("mine", folders[1])
    assert new.adapter_id != old.adapter_id
    assert pool.resolve("mine") is new
    mixed = packed_logits(llama, router, [tokens, tokens], [old.adapter_id, new.adapter_id])
    assert (mixed[:6] - peft_logits("llama", folders[0], tokens)).abs().max() <= 1e-4
    assert (mixed[6:] - peft_logits("llama", folders[1], tokens)).abs().max() <= 1e-4
    pool.release(old)
    with pytest.raises(InvalidField, match="no loaded adapter"):
        pool.reside([old.adapter_id])
    pool.check()


def test_the_same_content_is_one_version_under_every_name(llama, folders):
    pool = AdapterPool(llama, 2)
    first, second = pool.load("a", folders[0]), pool.load("b", folders[0])
    assert first is second
    assert pool.load("a", folders[0]) is first
    pool.unload("a")
    assert pool.names() == ("b",)
    assert pool.resolve("b") is first
    pool.check()


def test_an_unloaded_adapter_serves_its_holders_to_the_end(llama, folders):
    pool = AdapterPool(llama, 1)
    router, tokens = attach(llama, pool), tokens_of(2, 5)
    pool.load("a", folders[0])
    version = pool.acquire("a")
    pool.unload("a")
    with pytest.raises(UnknownAdapter):
        pool.resolve("a")
    logits = packed_logits(llama, router, [tokens], [version.adapter_id])
    assert (logits - peft_logits("llama", folders[0], tokens)).abs().max() <= 1e-4
    pool.release(version)
    pool.check()
    with pytest.raises(KeyError):
        pool.release(version)
    pool.hold(version)  # a replay of a finished run
    pool.check()
    assert torch.equal(packed_logits(llama, router, [tokens], [version.adapter_id]), logits)
    pool.release(version)
    pool.release(BASE)


def test_a_release_too_many_is_an_error(llama, folders):
    pool = AdapterPool(llama, 1)
    version = pool.load("a", folders[0])
    with pytest.raises(ValueError, match="more often than held"):
        pool.release(version)


def test_a_refused_file_changes_nothing(llama, folders, tmp_path):
    pool = AdapterPool(llama, 2)
    version = pool.load("a", folders[0])
    before = pool.list()
    with pytest.raises(AdapterRefused):
        pool.load("a", tmp_path)
    assert pool.list() == before
    assert pool.resolve("a") is version


def test_the_least_recently_used_is_moved_out_and_never_one_of_this_step(llama, folders):
    pool = AdapterPool(llama, 2)
    a, b, c = (pool.load(name, folder).adapter_id for name, folder in zip("abc", folders, strict=False))
    pool.reside([a])
    pool.reside([b])
    pool.reside([a])
    assert set(pool.reside([c, 0]).columns) == {a, c}
    assert set(pool.reside([b, a]).columns) == {a, b}
    assert [info.is_resident for info in pool.list()] == [True, True, False]
    with pytest.raises(InvalidField, match="the pool holds 2"):
        pool.reside([a, b, c])
    pool.check()


def test_one_that_a_sequence_holds_is_moved_out_last(llama, folders):
    pool = AdapterPool(llama, 2)
    a, b, c = (pool.load(name, folder).adapter_id for name, folder in zip("abc", folders, strict=False))
    running = pool.acquire("a")
    pool.reside([a])
    pool.reside([b])
    assert set(pool.reside([c]).columns) == {a, c}, "b was used later than a but nobody holds it"
    pool.acquire("b"), pool.acquire("c")
    assert set(pool.reside([b]).columns) == {b, c}, "all are held: the least recently used one"
    pool.release(running)
    pool.check()


def test_a_rename_keeps_the_version_and_everyone_who_holds_it(llama, folders):
    pool = AdapterPool(llama, 2)
    version = pool.load("old", folders[0])
    pool.load("twin", folders[0]), pool.load("other", folders[1])
    held = pool.acquire("old")
    pool.rename("old", "new")
    assert pool.names() == ("new", "other", "twin")
    assert pool.resolve("new") is version is held is pool.resolve("twin")
    assert pool.info("new").holds == 1
    pool.rename("new", "new")
    for old, new, error, words in (
        ("old", "x", UnknownAdapter, "'old' is not loaded"), ("new", "other", InvalidField, "another adapter has it"),
        ("new", " x", InvalidField, "spaces around"), ("new", "", InvalidField, "some text"),
    ):
        with pytest.raises(error, match=words):
            pool.rename(old, new)
        assert pool.names() == ("new", "other", "twin")
    pool.unload("twin"), pool.unload("new")
    pool.release(held)
    pool.check()


@pytest.mark.parametrize(("base", "file", "mixes"), [
    ("float16", "bfloat16", True), ("bfloat16", "float16", True), ("float16", "float16", False),
    ("bfloat16", "float32", False), ("float32", "float16", False),
])
def test_dtypes_are_named_and_a_mix_of_the_two_halves_is_told(folders, tmp_path, base, file, mixes):
    from safetensors.torch import load_file, save_file

    (tmp_path / "adapter_config.json").write_bytes((folders[0] / "adapter_config.json").read_bytes())
    tensors = load_file(folders[0] / "adapter_model.safetensors")
    cast = {key: tensor.to(getattr(torch, file)) for key, tensor in tensors.items()}
    save_file(cast, tmp_path / "adapter_model.safetensors")
    pool = AdapterPool(tiny("llama").to(getattr(torch, base)), 1)
    pool.load("a", tmp_path)
    info = pool.info("a")
    assert (info.dtype, info.base_dtype, info.mixes_halves) == (file, base, mixes)
    assert any(f"{file} numbers and the model {base} ones" in warning for warning in info.warnings) == mixes


def test_adapters_of_one_rank_class_take_each_others_place_without_a_new_layout(llama, folders):
    pool = AdapterPool(llama, 2)
    ids = [pool.load(str(k), folder).adapter_id for k, folder in enumerate(folders)]
    bank = pool.reside([ids[0], ids[1]])
    revision, size = bank.revision, bank.num_bytes
    pool.reside([ids[5]])
    assert (bank.revision, bank.num_bytes) == (revision, size)
    pool.reside([ids[3]])
    assert bank.revision == revision + 1
    assert bank.num_columns == 8 + 24


def test_fifty_adapters_rotate_through_four_places(llama, folders, tmp_path):
    import json

    pool = AdapterPool(llama, 4)
    router = attach(llama, pool)
    ids, oracles = [], []
    tokens = tokens_of(3, 4)
    for k in range(NUM_ADAPTERS):
        folder = tmp_path / str(k)
        folder.mkdir()
        source = folders[k % len(folders)]
        config = json.loads((source / "adapter_config.json").read_text()) | {"lora_alpha": 1 + k}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "adapter_model.safetensors").write_bytes((source / "adapter_model.safetensors").read_bytes())
        ids.append(pool.load(f"n{k}", folder).adapter_id)
        oracles.append(folder)
    random = np.random.default_rng(0)
    wanted: dict[int, torch.Tensor] = {}
    for _ in range(60):
        chosen = random.choice(NUM_ADAPTERS, 4, replace=False).tolist()
        logits = packed_logits(llama, router, [tokens] * 4, [ids[k] for k in chosen])
        pool.check()
        for row, k in enumerate(chosen):
            if k not in wanted:
                wanted[k] = peft_logits("llama", oracles[k], tokens)
            assert (logits[4 * row : 4 * row + 4] - wanted[k]).abs().max() <= 1e-4
    assert sum(info.is_resident for info in pool.list()) == 4


def test_loading_replacing_and_unloading_beside_a_running_worker(llama, folders):
    pool = AdapterPool(llama, 2)
    router, tokens = attach(llama, pool), tokens_of(4, 4)
    pool.load("kept", folders[0])
    wanted = packed_logits(llama, router, [tokens], [pool.resolve("kept").adapter_id])
    failures: list[BaseException] = []
    done = threading.Event()

    def churn(name: str, seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            while not done.is_set():
                pool.load(name, folders[int(random.integers(len(folders)))])
                version = pool.acquire(name)
                pool.check()
                if random.random() < 0.5:
                    pool.unload(name)
                pool.release(version)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(f"churn{k}", k)) for k in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            version = pool.acquire("kept")
            others = [pool.acquire(name) for name in pool.names() if name == "kept"]
            logits = packed_logits(llama, router, [tokens], [version.adapter_id])
            assert torch.equal(logits, wanted)
            for held in (version, *others):
                pool.release(held)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    pool.check()


def test_what_is_told_of_a_loaded_adapter(llama, folders):
    pool = AdapterPool(llama, 2)
    version = pool.load("b", folders[1])
    pool.release(pool.acquire("b"))
    pool.acquire("b")
    (info,) = pool.list()
    assert (info.name, info.version) == ("b", version.version)
    assert (info.ranks, info.alphas, info.scales) == ((4,), (8.0,), (2.0,))
    assert (info.modules, info.untouched, info.uses, info.holds, info.is_resident) == (6, 0, 2, 1, False)
    assert info.num_bytes == 3 * 4 * 4 * (48 + 48 + 48 + 16)
