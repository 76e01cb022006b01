"""The router against PEFT's own forward, one adapter at a time, in mixed packed passes."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from kev_engine.adapters.bank import Stack
from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.router import Router, apply, attach, group
from kev_engine.config import cache_home
from kev_engine.errors import InvalidField
from kev_engine.isolation import mask
from kev_engine.isolation.layout import pack
from kev_engine.native.kernels import Kernels, NoKernels, load_kernels
from tests.adapters.conftest import PROJECTIONS, VOCAB, SaveAdapter, peft_logits, tiny

TOLERANCE = 1e-4
EXAMPLES = 400 if os.environ.get("KEV_SOAK") else 12

# Every shape of adapter that is honoured; each is one seed of its own.
SHAPES: list[dict[str, object]] = [
    {"r": 1},
    {"r": 8, "lora_alpha": 32},
    {"r": 64, "lora_alpha": 16},
    {"r": 5, "use_rslora": True, "lora_alpha": 9},
    {"r": 4, "rank_pattern": {"q_proj": 9, r"layers\.1\.mlp\.up_proj": 2}, "alpha_pattern": {"v_proj": 31}},
    {"r": 4, "use_rslora": True, "rank_pattern": {"down_proj": 16}, "alpha_pattern": {"o_proj": 3}},
    {"r": 3, "target_modules": r".*\.[12]\..*(q|gate)_proj"},
    {"r": 3, "target_modules": "all-linear", "exclude_modules": ["k_proj", "model.layers.0.mlp.up_proj"]},
    {"r": 6, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0, 2], "layers_pattern": "layers"},
    {"r": 6, "target_modules": ["up_proj"], "layers_to_transform": 1},
    {"r": 2, "target_modules": ["q_proj", "lm_head"], "exclude_modules": r".*layers\.0.*"},
    {"r": 4, "fan_in_fan_out": False, "init_lora_weights": "gaussian", "lora_dropout": 0.5},
    {"r": 5, "target_modules": ["embed_tokens", "q_proj"], "use_rslora": True},
    {"r": 3, "target_modules": ["embed_tokens", "lm_head"], "rank_pattern": {"lm_head": 7}},
]


def kind_of(model: PreTrainedModel) -> str:
    return str(model.config.model_type)


def tokens_of(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, count).tolist()


def packed_logits(
    model: PreTrainedModel, router: Router | None, sequences: Sequence[Sequence[int]], adapter_ids: Sequence[int],
    keep: Sequence[int] | None = None,
) -> torch.Tensor:
    """`[T or R, V]` of one packed row, sequence k under `adapter_ids[k]`; without a router: the base."""
    layout = pack([len(tokens) for tokens in sequences])
    ids = np.repeat(np.asarray(adapter_ids, dtype=np.int32), layout.lengths)
    allowed = torch.from_numpy(mask.dense(layout))[None, None]
    rows = None if keep is None else np.asarray(keep)
    with torch.inference_mode(), router.step(ids, rows) if router else contextlib.nullcontext():
        return model(
            input_ids=torch.tensor([[token for tokens in sequences for token in tokens]]),
            position_ids=torch.from_numpy(layout.position_ids)[None],
            attention_mask=mask.additive(allowed, torch.float32),
            logits_to_keep=0 if rows is None else torch.from_numpy(rows), use_cache=False,
        ).logits[0].clone()


@pytest.fixture(scope="module")
def shaped(save_adapter: SaveAdapter) -> dict[tuple[str, int], Path]:
    return {
        (kind, seed): save_adapter(kind, seed=seed, **fields)
        for kind in ("llama", "qwen2") for seed, fields in enumerate(SHAPES)
    }


@pytest.fixture(scope="module")
def native() -> Kernels | None:
    """The kernels where they can be had, as the engine has them."""
    try:
        return load_kernels(cache_home(os.environ))
    except NoKernels:
        return None


@pytest.mark.parametrize("seed", range(len(SHAPES)))
def test_each_shape_of_adapter_gives_pefts_logits_in_a_mixed_pass(model, shaped, native, seed):
    kind = kind_of(model)
    pool = AdapterPool(model, 3)
    router = attach(model, pool, native if seed % 2 else None)
    folder, other = shaped[kind, seed], shaped[kind, (seed + 1) % len(SHAPES)]
    mine, others = pool.load("mine", folder).adapter_id, pool.load("other", other).adapter_id
    sequences = [tokens_of(1, 5), tokens_of(2, 40), tokens_of(3, 7), tokens_of(4, 33), tokens_of(5, 1), tokens_of(6, 3)]
    ids = [mine, mine, others, others, 0, mine]
    logits = packed_logits(model, router, sequences, ids)
    cuts = np.cumsum([0, *map(len, sequences)])
    folders = {mine: folder, others: other, 0: None}
    for k, (tokens, adapter_id) in enumerate(zip(sequences, ids, strict=True)):
        alone = peft_logits(kind, folders[adapter_id], tokens)
        assert (logits[cuts[k] : cuts[k + 1]] - alone).abs().max() <= TOLERANCE, f"sequence {k}"
    base = peft_logits(kind, None, sequences[1])
    assert (logits[cuts[1] : cuts[2]] - base).abs().max() > 100 * TOLERANCE, "the adapter must be seen at all"


@pytest.fixture(scope="module")
def mixers(llama, shaped, native):
    """For each model: itself, a router over adapters of many ranks and shapes, and each adapter's oracle."""
    return {kind: mix_of(kind, model, shaped, native) for kind, model in (("llama", llama), ("qwen2", tiny("qwen2")))}


@pytest.fixture(scope="module")
def mixer(mixers):
    return mixers["llama"][1:]


def mix_of(kind, model, shaped, native):
    pool = AdapterPool(model, len(SHAPES))
    all_folders = [shaped[kind, seed] for seed in range(len(SHAPES))]
    ids = {pool.load(folder.name, folder).adapter_id: folder for folder in all_folders}
    oracles: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def oracle(adapter_id: int, tokens: list[int]) -> torch.Tensor:
        key = (adapter_id, tuple(tokens))
        if key not in oracles:
            oracles[key] = peft_logits(kind, ids.get(adapter_id), tokens)
        return oracles[key]

    return model, attach(model, pool, native), [0, *ids], oracle


def mixes(num_adapters: int) -> st.SearchStrategy:
    sequence = st.tuples(st.integers(0, num_adapters), st.integers(0, 2), st.sampled_from([1, 2, 9, 31, 32, 45]))
    return st.lists(sequence, min_size=1, max_size=9)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=not os.environ.get("KEV_SOAK"),
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(mix=mixes(len(SHAPES)))
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_random_mixes_give_pefts_logits(mixers, kind, mix):
    model, router, known, oracle = mixers[kind]
    sequences = [tokens_of(seed, count) for _, seed, count in mix]
    ids = [known[choice] for choice, _, _ in mix]
    logits = packed_logits(model, router, sequences, ids)
    start = 0
    for tokens, adapter_id in zip(sequences, ids, strict=True):
        rows = logits[start : start + len(tokens)]
        assert (rows - oracle(adapter_id, tokens)).abs().max() <= TOLERANCE
        start += len(tokens)


def test_ids_shifted_by_one_token_are_seen(llama, mixer):
    """The mutation that the comparison above must catch: each token under its left neighbour's adapter."""
    router, known, oracle = mixer
    tokens = [tokens_of(1, 9), tokens_of(2, 9)]
    layout = pack([9, 9])
    ids = np.roll(np.repeat([known[1], known[2]], 9), 1).astype(np.int32)
    allowed = torch.from_numpy(mask.dense(layout))[None, None]
    with torch.inference_mode(), router.step(ids):
        logits = llama(
            input_ids=torch.tensor([tokens[0] + tokens[1]]), position_ids=torch.from_numpy(layout.position_ids)[None],
            attention_mask=mask.additive(allowed, torch.float32), use_cache=False,
        ).logits[0]
    for k in range(2):
        assert (logits[9 * k : 9 * k + 9] - oracle(known[1 + k], tokens[k])).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize("lengths", [[4, 3, 5, 1], [40, 3, 50, 1]])
def test_base_tokens_are_bit_identical_to_a_run_without_adapters(llama, mixer, lengths):
    router, known, _ = mixer
    sequences = [tokens_of(seed, count) for seed, count in enumerate(lengths)]
    plain = packed_logits(llama, None, sequences, [0] * 4)
    mixed = packed_logits(llama, router, sequences, [known[2], 0, known[3], 0])
    start = lengths[0]
    assert torch.equal(mixed[start : start + lengths[1]], plain[start : start + lengths[1]])
    assert torch.equal(mixed[-lengths[3] :], plain[-lengths[3] :])
    assert not torch.equal(mixed[:start], plain[:start])


@pytest.mark.parametrize("lengths", [[4, 3, 5], [40, 33, 35], [2, 40, 2]])
def test_swapping_the_neighbours_tokens_and_adapters_changes_no_bit_of_mine(llama, mixer, lengths):
    router, known, _ = mixer
    mine = tokens_of(1, lengths[1])
    rows = slice(lengths[0], lengths[0] + lengths[1])

    def run(seed: int, left: int, right: int) -> torch.Tensor:
        sequences = [tokens_of(seed, lengths[0]), mine, tokens_of(seed + 1, lengths[2])]
        return packed_logits(llama, router, sequences, [left, known[4], right])[rows]

    first = run(10, known[2], known[3])
    assert torch.equal(first, run(20, known[2], known[3]))
    assert torch.equal(first, run(30, known[1], known[6]))


def test_what_another_adapter_makes_of_my_token_is_never_used_not_even_infinity():
    stack = Stack(a=torch.ones(2, 4), b=torch.ones(4, 3))
    stack.a[:, 2:] = 3e38
    grouping = group(np.asarray([1, 2], dtype=np.int32), {1: slice(0, 2), 2: slice(2, 4)}, 4, torch.device("cpu"), 32)
    y = torch.zeros(2, 3)
    apply(stack, torch.ones(2, 2), y, grouping)
    assert y[0].tolist() == [4, 4, 4]
    assert not y[1].isfinite().any(), "the neighbour must have overflowed for this to prove anything"


def test_only_sampled_rows_reach_an_adapted_head(llama, shaped):
    pool = AdapterPool(llama, 2)
    router = attach(llama, pool)
    with_head, plain = pool.load("head", shaped["llama", 10]), pool.load("plain", shaped["llama", 1])
    sequences = [tokens_of(1, 4), tokens_of(2, 6), tokens_of(3, 40), tokens_of(4, 2)]
    ids = [with_head.adapter_id, plain.adapter_id, with_head.adapter_id, 0]
    everything = packed_logits(llama, router, sequences, ids)
    keep = [51, 49, 3, 9]
    torch.testing.assert_close(packed_logits(llama, router, sequences, ids, keep), everything[keep], atol=1e-5, rtol=0)


def test_a_step_of_base_tokens_leaves_no_hook_in_the_model(shaped):
    model = tiny("llama")
    pool = AdapterPool(model, 1)
    router, adapter = attach(model, pool), pool.load("a", shaped["llama", 0])

    def num_hooks() -> int:
        return sum(len(module._forward_hooks) for module in model.modules())

    packed_logits(model, router, [[1, 2]], [adapter.adapter_id])
    assert num_hooks() == len(PROJECTIONS) * 3
    packed_logits(model, router, [[1, 2]], [0])
    assert num_hooks() == 0


def test_outside_a_step_the_model_is_the_base(llama, mixer):
    router, known, _ = mixer
    packed_logits(llama, router, [[1, 2]], [known[1]])
    with pytest.raises(ZeroDivisionError), router.step([known[1]] * 2):
        raise ZeroDivisionError
    assert torch.equal(packed_logits(llama, None, [[1, 2]], [0]), packed_logits(llama, router, [[1, 2]], [0]))
    packed_logits(llama, router, [[1, 2]], [known[1]])
    with torch.inference_mode():
        bare = llama(input_ids=torch.tensor([[1, 2]]), use_cache=False).logits[0]
    torch.testing.assert_close(bare, peft_logits("llama", None, [1, 2]), atol=1e-5, rtol=0)


def test_a_forward_of_another_length_than_the_step_is_an_error(llama, mixer):
    router, known, _ = mixer
    with pytest.raises(RuntimeError, match="3 rows"), router.step([known[1]] * 2):
        llama(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False)


def test_an_id_that_nobody_loaded_is_an_error(mixer):
    router, known, _ = mixer
    with pytest.raises(InvalidField, match="no loaded adapter"), router.step([max(known) + 1]):
        pass


def test_the_grouping_of_a_row_written_out_by_hand():
    columns = {1: slice(0, 2), 2: slice(2, 4)}
    ids = np.asarray([0, 1, 0, 2, 2] + [1] * 4 + [0] * 4 + [2] + [0] + [0] * 4, dtype=np.int32)
    first, second, third = group(ids, columns, 4, torch.device("cpu"), long_run=4).pieces
    assert (first.rows, first.columns) == (slice(0, 5), None)
    assert first.foreign is not None
    assert first.foreign.int().tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert (second.rows, second.columns, second.foreign) == (slice(5, 9), columns[1], None)
    assert (third.rows, third.columns, third.foreign) == (slice(13, 14), columns[2], None)


def test_a_row_of_short_runs_is_one_piece_of_all_rows_and_columns():
    (piece,) = group(np.asarray([0, 2, 1]), {1: slice(0, 1), 2: slice(1, 2)}, 2, torch.device("cpu"), 32).pieces
    assert (piece.rows, piece.columns) == (None, None)
    assert piece.foreign is not None
    assert piece.foreign.int().tolist() == [[1, 1], [1, 0], [0, 1]]


def test_base_tokens_alone_make_no_piece():
    for ids in ([0], [0] * 50, [0] * 3):
        assert group(np.asarray(ids), {}, 8, torch.device("cpu"), 32).pieces == ()
