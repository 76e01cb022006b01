"""The compiled kernels against torch in double precision, and what must not change a bit of what they give."""

import shutil
from itertools import product

import pytest
import torch

from kev_engine.config import EngineConfig
from kev_engine.errors import InvalidField
from kev_engine.native.groups import round_groups
from kev_engine.native.kernels import NoKernels, load_kernels
from kev_engine.runtime.budget import pick_kernels
from kev_engine.runtime.engine import Engine
from tests.models.tiny import tiny_folder

TOLERANCE = 2e-6
ROWS, OUTS, INS = (1, 4, 8, 9, 16, 17, 40), (1, 3, 50, 97), (1, 7, 8, 31, 64)


def random(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def several_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_every_size_are_the_products(kernels, has_bias):
    for rows, outs, ins in product(ROWS, OUTS, INS):
        x, weight = random(rows, ins), random(outs, ins, seed=1)
        bias = random(outs, seed=2) if has_bias else None
        right = x.double() @ weight.double().t() + (bias if has_bias else 0)
        found = kernels.product(x, weight, bias)
        assert found.shape == (rows, outs)
        assert (found - right).abs().max() <= TOLERANCE * ins**0.5 * 4, (rows, outs, ins)


@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_int8_of_every_size(kernels, has_bias):
    for rows, outs, ins in product(ROWS, OUTS, (*INS, 575, 576)):
        whole, groups = round_groups(random(outs, ins, seed=1) + 3)
        x = random(rows, ins) * torch.tensor([1e-3, 1.0, 1e4])[torch.arange(rows) % 3, None]
        bias = random(outs, seed=2) if has_bias else None
        right = x.double() @ groups.weight(whole).double().t()
        found = kernels.product_int8(x, whole, groups.scale, groups.base, bias) - (bias if has_bias else 0)
        # Half a step of each number of x, by the greatest weight.
        bound = x.abs().amax(1) / 32767 / 2 * ins * groups.weight(whole).abs().max() + 1e-6 * right.abs().amax(1)
        assert ((found - right).abs().amax(1) <= bound + 1e-5).all(), (rows, outs, ins)


def test_products_of_more_rows_than_a_block(kernels, several_threads):
    """So many numbers to a row that every panel of x is a block of its own."""
    x, weight = random(40, 17000), random(13, 17000, seed=1)
    right = x.double() @ weight.double().t()
    assert (kernels.product(x, weight) - right).abs().max() <= 1e-5 * right.abs().max()
    whole, groups = round_groups(weight)
    right = x.double() @ groups.weight(whole).double().t()
    assert (kernels.product_int8(x, whole, groups.scale, groups.base) - right).abs().max() <= 1e-4 * right.abs().max()


def test_a_row_of_int8_is_computed_by_itself(kernels, several_threads):
    """Rows beside it, even without numbers, change no bit of a row, nor does their number; its own NaN or infinity is
    seen, not swallowed."""
    whole, groups = round_groups(random(150, 100, seed=1))
    x = random(33, 100)
    alone = torch.cat([kernels.product_int8(x[row : row + 1], whole, groups.scale, groups.base) for row in range(33)])
    for number in (2, 8, 9, 16, 17, 33):
        assert torch.equal(kernels.product_int8(x[:number], whole, groups.scale, groups.base), alone[:number])
    for bad in (torch.nan, torch.inf, -torch.inf):
        x[5, 7] = bad
        found = kernels.product_int8(x, whole, groups.scale, groups.base)
        assert found[5].isnan().all()
        rest = [row for row in range(33) if row != 5]
        assert torch.equal(found[rest], alone[rest])
    x[:] = 1e-38
    x[0] = 0
    assert kernels.product_int8(x, whole, groups.scale, groups.base).isfinite().all()


def test_a_row_is_computed_by_itself(kernels):
    """Neither the rows beside it, nor their number, nor the threads change a bit of a row."""
    x, weight = random(33, 100), random(150, 100, seed=1)
    before = torch.get_num_threads()
    alone = [kernels.product(x[row : row + 1], weight) for row in range(33)]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for rows in (2, 5, 8, 33):
            together = kernels.product(x[:rows], weight)
            x_other = torch.cat([x[:1], torch.full_like(x[1:rows], torch.nan)])
            assert torch.equal(kernels.product(x_other, weight)[0], alone[0][0])
            assert all(torch.equal(together[row], alone[row][0]) for row in range(rows)), (threads, rows)
    torch.set_num_threads(before)


@pytest.mark.parametrize(("ins", "outs"), [(1, 1), (7, 9), (64, 8), (100, 50)])
def test_each_row_is_adapted_by_its_own_columns_and_no_other(kernels, several_threads, ins, outs):
    """Also where rows, columns and results lie apart, and where every other column is no number."""
    rows, columns = 9, 40
    spans = torch.tensor([[0, 0], [0, 8], [8, 24], [24, 40], [0, 40], [16, 16], [8, 16], [32, 40], [0, 24]])
    x, a, b = random(rows, 2 * ins)[:, :ins], random(ins, 3, columns, seed=1)[:, 1], random(columns, outs, seed=2)
    before = random(rows, 3 * outs, seed=3)
    both = before.clone()
    kernels.adapt(x, a, b, both[:, outs : 2 * outs], spans)
    assert torch.equal(both[:, :outs], before[:, :outs])
    assert torch.equal(both[:, 2 * outs :], before[:, 2 * outs :])
    for row, (start, end) in enumerate(spans.tolist()):
        added = x[row].double() @ a[:, start:end].double() @ b[start:end].double()
        right = before[row, outs : 2 * outs].double() + added
        assert (both[row, outs : 2 * outs] - right).abs().max() <= TOLERANCE * (ins * columns) ** 0.5 * 10
        poisoned_a, poisoned_b = torch.full_like(a, torch.nan), torch.full_like(b, torch.inf)
        poisoned_a[:, start:end], poisoned_b[start:end] = a[:, start:end], b[start:end]
        alone = before[row : row + 1, outs : 2 * outs].clone()
        kernels.adapt(x[row : row + 1], poisoned_a, poisoned_b, alone, spans[row : row + 1])
        assert torch.equal(alone[0], both[row, outs : 2 * outs])


def test_rows_whose_numbers_lie_apart_are_no_input(kernels):
    spans, x, b = torch.tensor([[0, 8]]), random(1, 4), random(8, 6)
    for a, y in ((random(8, 4).t(), random(1, 6)), (random(4, 8), random(6, 2)[:, :1].t())):
        with pytest.raises(ValueError, match="side by side"):
            kernels.adapt(x, a, b, y, spans)


def attention(query, keys, values, slots, edges, scaling):
    """The definition, in double precision."""
    groups = query.shape[1] // keys.shape[1]
    outs = []
    for sequence in range(len(query)):
        mine = slots[edges[sequence] : edges[sequence + 1]]
        key, value = (tensor[mine].double().repeat_interleave(groups, 1).transpose(0, 1) for tensor in (keys, values))
        weights = torch.softmax(query[sequence].double()[:, None] @ key.transpose(1, 2) * scaling, -1)
        outs.append((weights @ value)[:, 0])
    return torch.stack(outs)


@pytest.mark.parametrize("head_first", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(9, 3, 64), (4, 4, 8), (6, 1, 20), (2, 2, 5)])
def test_attention_reads_its_slots_and_no_other(kernels, several_threads, heads, kv_heads, size, head_first):
    lengths = [1, 2, 7, 8, 9, 40, 333]
    order = torch.randperm(700, generator=torch.Generator().manual_seed(3))
    edges = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    slots = order[: sum(lengths)]
    query = random(len(lengths), heads, size) * 3
    keys, values = random(2, 700, kv_heads, size, seed=1)
    unused = order[sum(lengths) :]
    keys[unused] = values[unused] = torch.nan
    if head_first:
        keys, values = (tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (keys, values))
    found = kernels.attend(query, keys, values, slots, edges, size**-0.5)
    right = attention(query, keys, values, slots, edges, size**-0.5)
    assert (found - right).abs().max() < TOLERANCE
    keys[slots[1:]] = torch.nan
    values[slots[1:]] = torch.inf
    poisoned = kernels.attend(query, keys, values, slots, edges, size**-0.5)
    assert torch.equal(poisoned[0], found[0]), "the first sequence has one key of its own and reads no other"
    assert not poisoned[1:].isfinite().any(), "a NaN of its own must be seen, not swallowed"


@pytest.mark.parametrize("scaling", [1e-3, 1.0, 50.0])
def test_softmax_holds_for_flat_and_for_steep_scores(kernels, scaling):
    query, keys, values = random(3, 2, 16), random(100, 2, 16, seed=1), random(100, 2, 16, seed=2)
    slots, edges = torch.arange(100), torch.tensor([0, 1, 50, 100])
    found = kernels.attend(query, keys, values, slots, edges, scaling)
    assert (found - attention(query, keys, values, slots, edges, scaling)).abs().max() < 1e-5


@pytest.mark.parametrize("size", [1, 7, 8, 31, 576])
@pytest.mark.parametrize("rows", [1, 9, 400])
def test_norms_and_gates(kernels, several_threads, rows, size):
    """At sizes with and without a rest, shared among threads and not; a row is computed by itself."""
    x, weight = random(rows, size) * 20, random(size, seed=1)
    right = torch.nn.functional.rms_norm(x.double(), (size,), weight.double(), 1e-5)
    assert (kernels.norm(x, weight, 1e-5) - right).abs().max() <= TOLERANCE * right.abs().max()
    assert torch.equal(kernels.norm(x[:1], weight, 1e-5), kernels.norm(x, weight, 1e-5)[:1])
    both = random(rows, 2 * size, seed=2) * 20
    right = torch.nn.functional.silu(both[:, :size].double()) * both[:, size:]
    assert (kernels.gate(both) - right).abs().max() <= TOLERANCE * right.abs().max()
    extreme = torch.tensor([[0.0, -100.0, 100.0, -3e38, 3e38, torch.nan, torch.inf, *[1.0] * 7]])
    right = torch.nn.functional.silu(extreme[:, :7].double())
    torch.testing.assert_close(kernels.gate(extreme), right.float(), equal_nan=True)


@pytest.mark.parametrize("window", [None, 1, 9, 70])
@pytest.mark.parametrize(("queries", "keys", "size"), [(1, 1, 2), (16, 75, 22), (40, 200, 64), (130, 130, 10)])
def test_many_queries_read_what_they_may(kernels, several_threads, queries, keys, size, window):
    """Heads that lie anywhere; a key that no query may read could be anything."""
    query = random(queries, 2 * size, 6).transpose(1, 2)[..., :size].contiguous()
    key, value = random(2, 3, keys + 2, size, seed=1).transpose(1, 2)[:, 1:-1]
    position, at = torch.arange(keys - queries, keys)[:, None], torch.arange(keys)
    mask = (at <= position) & (at > position - (window or keys))
    right = torch.nn.functional.scaled_dot_product_attention(
        query.double().transpose(0, 1), key.double().transpose(0, 1), value.double().transpose(0, 1), mask, scale=0.3,
        enable_gqa=True,
    ).transpose(0, 1)
    unread = ~mask.any(0)
    key[unread] = value[unread] = torch.nan
    found = kernels.prefill(query, key, value, window, 0.3)
    assert (found - right).abs().max() <= 4 * TOLERANCE * right.abs().max()


def test_a_query_is_computed_by_itself(kernels, several_threads):
    """Neither the queries before it in the call nor those after it change a bit of one; what is no number is seen in
    those that read it and in no other."""
    query, (key, value) = random(150, 6, 16), random(2, 150, 2, 16, seed=1)
    whole = kernels.prefill(query, key, value, None, 0.3)
    for start, end in ((0, 37), (37, 90), (149, 150)):
        part = kernels.prefill(query[start:end], key[:end], value[:end], None, 0.3)
        assert torch.equal(part, whole[start:end])
    for number in (torch.nan, torch.inf):
        for place in (query, key):
            kept, place[70, 0, 3] = place[70, 0, 3].item(), number
            found = kernels.prefill(query, key, value, None, 0.3)
            place[70, 0, 3] = kept
            assert torch.equal(found[:70], whole[:70])
            assert found[70, 0].isnan().all()
            assert place is key or torch.equal(found[71:], whole[71:])
            assert place is query or found[71:, :3].isnan().all()


def test_scores_far_apart_and_far_from_nought(kernels):
    """A softmax of numbers whose exponentials no float holds."""
    query = random(80, 2, 8) * 300
    key, value = random(2, 80, 1, 8, seed=1)
    key = key * 300
    mask = torch.ones(80, 80).tril().bool()
    right = torch.nn.functional.scaled_dot_product_attention(
        query.double().transpose(0, 1), key.double().transpose(0, 1), value.double().transpose(0, 1), mask, scale=0.3,
        enable_gqa=True,
    ).transpose(0, 1)
    assert (kernels.prefill(query, key, value, None, 0.3) - right).abs().max() <= 1e-2


def test_keys_and_values_are_stored_where_they_belong_and_nowhere_else(kernels):
    wide, slots = random(5, 7, 6), torch.tensor([8, 1, 0, 5, 2])
    for key, value in ((wide[:, :3], wide[:, 4:]), (wide[:, :3], random(3, 5, 6).transpose(0, 1))):
        kept = torch.zeros(2, 3, 9, 6).transpose(1, 2)
        kernels.store(key, value, *kept, slots)
        right = torch.zeros(2, 9, 3, 6)
        right[0, slots], right[1, slots] = key, value
        assert torch.equal(kept, right)
    with pytest.raises(ValueError, match="side by side"):
        kernels.store(key.transpose(1, 2), value.transpose(1, 2), *kept, slots)


@pytest.mark.parametrize(("rows", "heads", "size"), [(1, 1, 2), (3, 2, 6), (5, 12, 64), (700, 3, 40)])
def test_rotations(kernels, several_threads, rows, heads, size):
    """Of heads that lie in wider rows, by cosines and sines whose halves differ; a row is rotated by itself."""
    wide, half = random(rows, (heads + 2) * size).view(rows, heads + 2, size), size // 2
    cos, sin = random(rows, size, seed=1), random(rows, size, seed=2)
    x = wide[:, 1:-1]
    swapped = torch.cat([-x[..., half:], x[..., :half]], -1)
    right = x.double() * cos[:, None] + swapped.double() * sin[:, None]
    assert (kernels.rotate(x, cos, sin) - right).abs().max() <= TOLERANCE * right.abs().max()
    assert torch.equal(kernels.rotate(x, cos, sin)[:1], kernels.rotate(x[:1], cos[:1], sin[:1]))
    with pytest.raises(ValueError, match="side by side"):
        kernels.rotate(x.transpose(1, 2), cos, sin)


def test_without_a_compiler_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoKernels, match="no C compiler"):
        load_kernels(tmp_path)
    found, reason = pick_kernels("auto", tmp_path, torch.device("cpu"), torch.float32)
    assert found is None
    assert reason == "torch, because the native kernels cannot be used: no C compiler was found (cc, gcc, clang)."
    with pytest.raises(InvalidField, match="no C compiler"):
        pick_kernels("native", tmp_path, torch.device("cpu"), torch.float32)
    with pytest.raises(InvalidField, match="auto, native, torch"):
        pick_kernels("fast", tmp_path, torch.device("cpu"), torch.float32)


def test_kernels_that_are_right_are_used_however_they_were_compiled(kernels, compiled_from):
    assert compiled_from("vectors.h", "", "").most_rows == kernels.most_rows


@pytest.mark.parametrize(("file", "right", "wrong"), [
    ("products.c", "x[(first + r) * k + t]", "x[first * k + t]"), ("products.c", "v], mine[v], w[", "v], mine[0], w["),
    ("products.c", "= add_product(", "= (vectors == 1 ? 1.0000001f : 1) * add_product("),
    ("products.c", "+ (bias ? bias[c] : 0.0f);", "+ 1;"),
    ("int8.c", ", w.scale[at]);", ", 1);"), ("int8.c", ", w.base[at]);", ", 0);"),
    ("int8.c", "* worth[r] +", "* worth[0] +"), ("int8.c", "strip + c * GROUP + 2 * p", "strip + 2 * p"),
    ("int8.c", "sums[g * width + r]", "sums[g * width]"), ("int8.c", "? from[t] : 0;", "? from[0] : 0;"),
    ("kernels.c", "* hidden[u];\n                *(vec", "* hidden[0];\n                *(vec"),
    ("kernels.c", "void attend_f32", "void attend_f33"), ("kernels.c", "* factor * weight[t];", "* factor;"),
    ("prefill.c", "past + i);", "past + i + 1);"), ("prefill.c", "i + 1 - window", "i - window"),
    ("prefill.c", "*= factor;", "*= 1;"), ("prefill.c", "exp_below(*mine - top)", "exp_below(*mine)"),
    ("kernels.c", "(e * above)", "(e)"), ("kernels.c", "slots[t] * slot_stride", "t * slot_stride"),
    ("kernels.c", "- load(high + t) * load(s + t)", "+ load(high + t) * load(s + t)"),
    ("vectors.h", "#include <math.h>", "#error no"),
])
def test_kernels_that_are_wrong_are_not_used(kernels, compiled_from, file, right, wrong):
    with pytest.raises(NoKernels):
        compiled_from(file, right, wrong)


def test_the_engine_says_which_kernels_it_runs(kernels, tmp_path):
    folder = str(tiny_folder(tmp_path, "llama"))
    for name, begins in (("auto", "native"), ("torch", "torch was asked for")):
        with Engine(EngineConfig(model=folder, kernels=name, kv_budget_bytes=1 << 20)) as engine:
            assert engine.info.kernels.startswith(begins)
