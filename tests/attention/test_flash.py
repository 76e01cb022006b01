"""The flash backend on its stand-in: what the calls are given, what a wrong call costs, and the stand-in itself."""

import inspect
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu
from kev_engine.attention.base import LayerFacts
from kev_engine.attention.dense import DenseBackend
from kev_engine.attention.flash import FlashBackend
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.plan import StepPlan
from tests.attention import flash_standin
from tests.attention.test_backends import Story

CPU = torch.device("cpu")
HALF = torch.float16
TOLERANCE = 2**-9 * 1.01
MUTANT = 0.02
"""A wrong call must be off by this, ten times the tolerance."""


def stories() -> Story:
    """Two readers of a context that ends in mid-page, a stranger, and mixed steps: prompts enter in chunks."""
    story = Story(0, groups=2, token_budget=300, block_size=256, dtype=HALF)
    story.add(40, new_tokens=4)
    context = story.add(300, new_tokens=0)
    story.add(30, context, new_tokens=3)
    story.add(5, context, new_tokens=3)
    story.add(270, new_tokens=3)
    return story


def distance(backend, window=None, story=None) -> float:
    """The largest difference from the oracle over all outputs; NaN counts as 9."""
    story = stories() if story is None else story
    right = story.run(DenseBackend(), window)
    found = story.run(backend, window)
    return max(float((found[cell] - right[cell]).nan_to_num(nan=9.0).abs().max()) for cell in right)


class Recorder:
    """The stand-in; `change` may edit the keywords of each call, `calls` lists their names."""

    def __init__(self, change=lambda name, call: None):
        self.calls = []
        self.change = change

    def __getattr__(self, name):
        kernel = getattr(flash_standin, name)

        def call(*args, **keywords):
            bound = inspect.signature(kernel).bind(*args, **keywords)
            self.calls.append(name)
            self.change(name, bound.arguments)
            return kernel(*bound.args, **bound.kwargs)

        return call


class Mutant(FlashBackend):
    """Flash with one field of every step's state changed."""

    def __init__(self, change):
        super().__init__(flash_standin, "cpu")
        self.change = change

    def prepare(self, plan: StepPlan, storage, windows):
        state = super().prepare(plan, storage, windows)
        return replace(state, **self.change(state))


def test_only_pure_decode_steps_take_the_kvcache_call():
    recorder = Recorder()
    assert distance(FlashBackend(recorder, "cpu"), window=300) < TOLERANCE
    assert recorder.calls[0] == "flash_attn_varlen_func"
    assert recorder.calls[-1] == "flash_attn_with_kvcache"
    sizes = {"flash_attn_varlen_func": [], "flash_attn_with_kvcache": []}
    distance(FlashBackend(Recorder(lambda name, call: sizes[name].append(len(call["q"]))), "cpu"))
    assert any(size not in (1, 300) for size in sizes["flash_attn_varlen_func"]), "mixed steps of several sequences"
    assert max(sizes["flash_attn_with_kvcache"]) <= 4


def test_a_single_token_prompt_is_no_decode_row():
    story = Story(1, 2, 4096, 256, HALF)
    story.add(1, new_tokens=2)
    story.add(1, new_tokens=2)
    assert distance(FlashBackend(flash_standin, "cpu"), story=story) < TOLERANCE


def moved_border(state):
    """The first inner border one token late; a step of one sequence has none."""
    moved = state.cu_seqlens_q.clone()
    if len(moved) > 2 and not state.is_decode:
        moved[1] += 1
    return {"cu_seqlens_q": moved, "max_seqlen_q": state.max_seqlen_q + 1}


def one_key_less(state):
    return {"cu_seqlens_k": state.cu_seqlens_k - torch.arange(len(state.cu_seqlens_k), dtype=torch.int32)}


def one_key_more(state):
    more = state.cu_seqlens_k + torch.arange(len(state.cu_seqlens_k), dtype=torch.int32)
    return {"cu_seqlens_k": more, "max_seqlen_k": 10**6}


def one_key_less_in_decode(state):
    return {"num_keys": state.num_keys - 1}


def neighbours_table(state):
    return {"block_tables": state.block_tables.roll(1, 0)}


def swapped_pages(state):
    return {"block_tables": state.block_tables.flip(1)}


@pytest.mark.parametrize("change", [
    moved_border, one_key_less, one_key_more, one_key_less_in_decode, neighbours_table, swapped_pages,
])
def test_a_wrong_length_or_table_entry_is_noticed(change):
    assert distance(Mutant(lambda state: {})) < TOLERANCE
    assert distance(Mutant(change)) > MUTANT


def at(name, index, value):
    def change(state):
        changed = getattr(state, name).clone()
        changed[index] = value
        return {name: changed}

    return change


@pytest.mark.parametrize(("change", "words"), [
    (at("cu_seqlens_q", 0, 1), "begin with 0"),
    (at("cu_seqlens_q", -1, -1), "must not fall"),
    (lambda state: {"cu_seqlens_q": (state.cu_seqlens_q - 1).clamp(min=0)}, "q has"),
    (at("cu_seqlens_k", 1, 10**6), "must not fall|above the maximum"),
    (at("block_tables", (0, 0), 10**6), "outside the cache"),
    (at("block_tables", (0, 0), -1), "outside the cache"),
    (lambda state: {"cu_seqlens_k": state.cu_seqlens_k.long()}, "int32"),
    (lambda state: {"cu_seqlens_q": state.cu_seqlens_q.repeat_interleave(2)[::2]}, "contiguous"),
    (lambda state: {"block_tables": state.block_tables.long()}, "int32"),
    (lambda state: {"block_tables": state.block_tables[:, :0]}, "exceed the 0 pages"),
    (lambda state: {"max_seqlen_k": 1}, "above the maximum"),
    (lambda state: {"max_seqlen_q": 1}, "above the maximum"),
])
def test_a_call_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(RuntimeError, match=words):
        distance(Mutant(change))


@pytest.mark.parametrize("call", ["flash_attn_varlen_func", "flash_attn_with_kvcache"])
@pytest.mark.parametrize(("field", "wrong"), [
    ("causal", False), ("window_size", (5, 0)), ("window_size", (3, 0)), ("window_size", (-1, -1)),
    ("softmax_scale", 1.0), ("softcap", 0.5),
])
def test_a_wrong_flag_or_window_is_noticed(call, field, wrong):
    """Each call by itself, with a window of 5 tokens; a wrong causal flag shows where a query is not the last token."""

    def change(name, arguments):
        if name == call:
            arguments[field] = wrong
        if field == "causal":
            arguments["window_size"] = (-1, -1)

    single = field == "causal" and call == "flash_attn_with_kvcache"
    off = distance(FlashBackend(Recorder(change), "cpu"), window=None if field == "causal" else 5)
    assert off < TOLERANCE if single else off > MUTANT


def test_scaling_and_softcap_reach_the_kernel():
    seen = []
    recorder = Recorder(lambda name, call: seen.append((call["softmax_scale"], call["softcap"], call["window_size"])))
    storage = KVStorage(KVShape(1, 2, 8, HALF), 3, 256, CPU)
    storage.fill([1, 2], 1.0)
    backend = FlashBackend(recorder, "cpu")
    state = backend.prepare(gpu.step_plan(2, 200, 1), storage, frozenset({None}))
    query = torch.randn(1, 4, 2, 8, dtype=HALF)
    for layer in (LayerFacts(0, 0.5, window=7, softcap=30.0), LayerFacts(0, 0.25)):
        backend.attend(layer, query, storage, state)
    assert seen == [(0.5, 30.0, (6, 0)), (0.25, 0.0, (-1, -1))]


@pytest.mark.parametrize("backend", [FlashBackend(flash_standin, "cpu"), DenseBackend()], ids=lambda item: item.name)
def test_nan_behind_the_last_key_and_in_foreign_pages_changes_no_bit(backend):
    """Unused slots of a sequence's own last page, and every page it does not hold."""
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 4 * 256, 2, 8, generator=generator).to(HALF)
    query = torch.randn(1, 4, 2, 8, generator=generator).to(HALF)
    plan = gpu.step_plan(2, 200, 1)
    found = []
    for poison in (0.0, float("nan")):
        storage = KVStorage(KVShape(1, 2, 8, HALF), 4, 256, CPU)
        storage.write(0, torch.arange(4 * 256), keys, values)
        unused = [*range(256 + 200, 512), *range(512 + 200, 768), *range(768, 1024)]
        storage.fill_slots(torch.tensor(unused), poison)
        state = backend.prepare(plan, storage, frozenset({None}))
        found.append(backend.attend(LayerFacts(0, 0.35), query, storage, state))
    assert torch.isfinite(found[1]).all()
    assert torch.equal(found[0], found[1])


def test_the_standin_carries_a_nan_of_ones_own_hidden_key():
    """As the kernels do: weight zero times NaN. No key below a story's length may be left unwritten."""
    key = torch.zeros(1, 256, 1, 8, dtype=HALF)
    value = key.clone()
    value[0, 0] = float("nan")
    out = flash_standin.flash_attn_with_kvcache(
        torch.zeros(1, 1, 1, 8, dtype=HALF), key, value, cache_seqlens=torch.tensor([9], dtype=torch.int32),
        block_table=torch.zeros(1, 1, dtype=torch.int32), causal=True, window_size=(2, 0),
    )
    assert out.isnan().all()


@pytest.mark.parametrize(("queries", "keys", "causal", "window", "visible"), [
    (2, 5, True, (-1, -1), ["11110", "11111"]),
    (5, 2, True, (-1, -1), ["00", "00", "00", "10", "11"]),
    (2, 5, True, (1, 0), ["00110", "00011"]),
    (2, 5, False, (1, 1), ["00111", "00011"]),
    (3, 3, False, (-1, -1), ["111", "111", "111"]),
])
def test_the_standin_masks_as_the_package_documents(queries, keys, causal, window, visible):
    """Row i of the picture says which values query i may read: equal scores, and value j is 2 to the power of j."""
    value = torch.zeros(1, 256, 1, 8, dtype=HALF)
    value[0, :keys, 0, 0] = 2.0 ** torch.arange(keys)
    cu = {"cu_seqlens_q": [0, queries], "cu_seqlens_k": [0, keys]}
    out = flash_standin.flash_attn_varlen_func(
        torch.zeros(queries, 1, 8, dtype=HALF), torch.zeros_like(value), value,
        **{name: torch.tensor(item, dtype=torch.int32) for name, item in cu.items()},
        max_seqlen_q=queries, max_seqlen_k=keys, causal=causal, window_size=window,
        block_table=torch.zeros(1, 1, dtype=torch.int32),
    )
    for row, picture in zip(out[:, 0, 0].tolist(), visible, strict=True):
        read = [2.0**key for key, mark in enumerate(picture) if mark == "1"]
        assert row == pytest.approx(sum(read) / max(1, len(read)), rel=2e-3)


@pytest.mark.parametrize(("change", "words"), [
    ({"dtype": torch.float32}, "fp16 and bf16"),
    ({"block_size": 128}, "divisible by 256"),
    ({"head_dim": 12}, "multiple of 8"),
    ({"head_dim": 264}, "at most 256"),
])
def test_the_standin_refuses_what_the_package_refuses(change, words):
    given = {"dtype": HALF, "block_size": 256, "head_dim": 8, **change}
    shape = KVShape(1, 1, given["head_dim"], given["dtype"])
    storage = KVStorage(shape, 512 // given["block_size"] + 1, given["block_size"], CPU)
    backend = FlashBackend(flash_standin, "cpu")
    state = backend.prepare(gpu.step_plan(1, 3, 1), storage, frozenset({None}))
    with pytest.raises(RuntimeError, match=words):
        backend.attend(LayerFacts(0, 1.0), torch.zeros(1, 1, 1, shape.head_dim, dtype=shape.dtype), storage, state)


@pytest.mark.parametrize(("needs", "device", "change", "words"), [
    ({"sinks"}, "cuda", {}, "does not compute sinks"),
    (set(), "cpu", {}, "needs a CUDA device and this one is cpu"),
    (set(), "cuda", {}, "needs the package flash-attn"),
])
def test_a_refusal_names_what_is_missing(needs, device, change, words, monkeypatch):
    monkeypatch.setattr("kev_engine.attention.flash.find_spec", lambda name: None)
    shape = replace(KVShape(1, 1, 64, HALF), **change)
    assert words in FlashBackend().unsupported(frozenset(needs), torch.device(device), shape)


@pytest.mark.parametrize(("change", "words"), [
    ({"dtype": torch.float32}, "in float16 or bfloat16 and not in float32"),
    ({"head_dim": 20}, "these have 20"),
    ({"head_dim": 320}, "these have 320"),
    ({}, None),
])
def test_a_shape_the_kernels_refuse_is_refused_before_a_step(change, words):
    shape = replace(KVShape(1, 1, 64, HALF), **change)
    reason = FlashBackend(flash_standin, "cpu").unsupported(frozenset({"window", "softcap"}), CPU, shape)
    assert reason is None if words is None else words in reason


def test_the_installed_package_has_the_standins_signatures():
    """Where flash-attn is installed; elsewhere the names the backend uses are all that can be checked."""
    package = pytest.importorskip("flash_attn")
    for name in ("flash_attn_varlen_func", "flash_attn_with_kvcache"):
        real, ours = (inspect.signature(getattr(owner, name)).parameters for owner in (package, flash_standin))
        assert list(real) == list(ours)
        assert [item.default for item in real.values()] == [item.default for item in ours.values()]


def test_kernels_are_any_object_with_the_two_calls():
    kernels = SimpleNamespace(
        flash_attn_varlen_func=flash_standin.flash_attn_varlen_func,
        flash_attn_with_kvcache=flash_standin.flash_attn_with_kvcache,
    )
    assert FlashBackend(kernels, "cpu").kernels is kernels


@pytest.mark.parametrize(("keys", "new"), [(600, 1), (300, 300), (300, 7)])
def test_the_gpu_benchmarks_steps_are_real_steps(keys, new):
    """What is timed there gives the oracle's result."""
    plan, shape = gpu.step_plan(2, keys, new), KVShape(1, 2, 8, HALF)
    storage = gpu.storage_of(shape, int(plan.block_tables.max()) + 1, CPU, seed=0)
    query = torch.randn(1, 4, plan.num_tokens, 8).to(HALF)
    flash, dense = (
        gpu.attend(backend, plan, storage, LayerFacts(0, 0.35), query)()
        for backend in (FlashBackend(flash_standin, "cpu"), DenseBackend())
    )
    assert (flash - dense).abs().max() < TOLERANCE


def test_the_gpu_benchmark_says_in_one_sentence_what_it_lacks(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^benchmarks\.gpu needs a CUDA device .*none\.$"):
        gpu.main()


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (100, 20.0)])
def test_the_gpu_benchmarks_check_passes_on_the_standin_and_sees_a_mutant(window, softcap):
    """What decides there whether flash is right, run here."""
    shape, layer = KVShape(1, 2, 64, HALF), LayerFacts(0, 0.125, window, softcap)
    unit = gpu.LAST_PLACE[HALF]
    assert gpu.worst_difference(FlashBackend(flash_standin, "cpu"), CPU, shape, layer, 2, scale=300) <= 2 * unit
    assert gpu.worst_difference(Mutant(one_key_less), CPU, shape, layer, 2, scale=300) > 10 * unit
