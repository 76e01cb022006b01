"""What stands around a layer's attention, in two calls: bit for bit what its kernels give one by one."""

from itertools import product

import pytest
import torch

from kev_engine.native.groups import round_groups
from kev_engine.native.layers import Adapting, LayerKernel, LayerWeights, LoneRows, Norm, Weights, layer_adapters

SIZE, WIDTH, HEAD, QUERY_HEADS, KV_HEADS = 48, 80, 12, 4, 2
OUTS_INS = (((QUERY_HEADS + 2 * KV_HEADS) * HEAD, SIZE), (SIZE, QUERY_HEADS * HEAD), (2 * WIDTH, SIZE), (SIZE, WIDTH))
COLUMNS = 24


class Adapters(Adapting):
    """Adapters of one product, the same in every step."""

    def __init__(self, columns, spans):
        super().__init__(columns)
        self._spans = spans

    @property
    def spans(self):
        return self._spans


def random(*size: int, seed: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def weights(has_bias: bool, is_int8: bool, has_head_norms: bool) -> LayerWeights:
    products = []
    for seed, (outs, ins) in enumerate(OUTS_INS):
        weight, groups = random(outs, ins, seed=seed) / 5, None
        if is_int8:
            weight, groups = round_groups(weight)
        products.append(Weights(weight, random(outs, seed=seed + 10) if has_bias else None, groups))
    norms = [Norm(random(SIZE, seed=20), 1e-5), Norm(random(SIZE, seed=21), 1e-3)]
    if has_head_norms:
        norms += [Norm(random(HEAD, seed=22), 1e-6), Norm(random(HEAD, seed=23), 1e-2)]
    return LayerWeights(tuple(products), tuple(norms), HEAD)


def adapters(num_rows: int) -> list[Adapters | None]:
    """Of all products but the attention's output; every third row has none, the others differ."""
    spans = torch.tensor([[0, 0], [8, 24], [0, 8]])[torch.arange(num_rows) % 3]
    found: list[Adapters | None] = []
    for seed, (outs, ins) in enumerate(OUTS_INS):
        cuts = (0, outs // 2) if seed % 2 == 0 else (0,)  # a joint product has the adapters of its parts
        widths = [end - start for start, end in zip(cuts, (*cuts[1:], outs), strict=True)]
        found.append(None if seed == 1 else Adapters([
            (random(ins, COLUMNS + 5, seed=30 + seed)[:, :COLUMNS], random(COLUMNS, width, seed=40 + first), first)
            for first, width in zip(cuts, widths, strict=True)
        ], spans))
    return found


def multiply(kernels, weights, x, adapters):
    if weights.groups is None:
        y = kernels.product(x, weights.weight, weights.bias)
    else:
        y = kernels.product_int8(x, weights.weight, weights.groups.scale, weights.groups.base, weights.bias)
    for a, b, first in adapters.columns if adapters else ():
        kernels.adapt(x, a, b, y[:, first : first + b.shape[1]], adapters.spans)
    return y


def are_equal(broken, kernels, given: LayerWeights, num_rows: int, has_adapters: bool) -> bool:
    """Whether the two calls of `broken` give the bits that `kernels` give one by one."""
    layer = LayerKernel(broken, given)
    x, mixed = random(num_rows, SIZE, seed=1), random(num_rows, QUERY_HEADS * HEAD, seed=2)
    cos, sin = random(num_rows, HEAD, seed=3), random(num_rows, HEAD, seed=4)
    hooks = adapters(num_rows) if has_adapters else [None] * 4
    norm_in, norm_out, *head_norms = given.norms

    normed = kernels.norm(x, norm_in.weight, norm_in.eps)
    heads = multiply(kernels, given.products[0], normed, hooks[0]).view(num_rows, -1, HEAD)
    query, key, value = heads.split([QUERY_HEADS, KV_HEADS, KV_HEADS], 1)
    if head_norms:
        query, key = (
            kernels.norm(part.contiguous(), norm.weight, norm.eps)
            for part, norm in zip((query, key), head_norms, strict=True)
        )
    rotated = kernels.rotate(torch.cat([query, key], 1), cos, sin)
    h = x + multiply(kernels, given.products[1], mixed, hooks[1])
    normed = kernels.norm(h, norm_out.weight, norm_out.eps)
    gated = kernels.gate(multiply(kernels, given.products[2], normed, hooks[2]))
    right = h + multiply(kernels, given.products[3], gated, hooks[3])

    found_heads, found_rotated = layer.enter(x, cos, sin, layer_adapters(hooks))
    found = found_heads[:, -KV_HEADS:], found_rotated, layer.leave(x, mixed, layer_adapters(hooks))
    return all(map(torch.equal, found, (value, rotated, right)))


@pytest.mark.parametrize(
    ("has_bias", "is_int8", "has_head_norms", "has_adapters"), [*product([False, True], repeat=4)]
)
def test_two_calls_give_the_bits_of_the_kernels_one_by_one(kernels, has_bias, is_int8, has_head_norms, has_adapters):
    for num_rows in (1, 2, 8, 9, 33, 300):  # the last are more than pass through together
        assert are_equal(kernels, kernels, weights(has_bias, is_int8, has_head_norms), num_rows, has_adapters), num_rows


@pytest.mark.parametrize(("right", "wrong"), [
    ("spans + (added ? 2 * r : 0), normed", "spans, normed"),
    ("*theirs = spans + (added ? 2 * r : 0);", "*theirs = spans;"),
    ("added ? added + 3 : NULL", "NULL"), ("out + part->first, spans", "out, spans"),
    ("l->q_norm && r < rows; r++", "l->q_norm && r < 1; r++"),
])
def test_a_layer_that_is_wrong_gives_other_bits(kernels, compiled_from, right, wrong):
    """What no model's proof sees, because it runs without adapters and with a few rows: these tests do."""
    broken = compiled_from("layer.c", right, wrong)
    assert not are_equal(broken, kernels, weights(True, False, True), 300, True)


def test_a_row_is_the_same_whoever_stands_beside_it(kernels):
    """Poison in one row stays there, through both calls and under adapters."""
    layer, added = LayerKernel(kernels, weights(True, False, True)), layer_adapters(adapters(9))
    x, mixed = random(9, SIZE, seed=1), random(9, QUERY_HEADS * HEAD, seed=2)
    cos, sin = random(9, HEAD, seed=3), random(9, HEAD, seed=4)

    def all_given(x, mixed):
        return *layer.enter(x, cos, sin, added), layer.leave(x, mixed, added)

    right = all_given(x, mixed)
    x, mixed = x.clone(), mixed.clone()
    x[4], mixed[4] = float("nan"), float("nan")
    for before, after in zip(right, all_given(x, mixed), strict=True):
        assert after[4].isnan().all()
        rest = torch.arange(9) != 4
        assert torch.equal(before[rest], after[rest])


LENGTHS = (3, 1, 7, 12, 5, 9, 2, 30, 4)
"""Keys of each of nine stories, the new one included."""


def story(seed: int):
    """Keys and values of 100 slots, head by head like a storage's; where each story reads, and keeps its last."""
    keys, values = (random(KV_HEADS, 100, HEAD, seed=seed + half).transpose(0, 1) for half in (0, 1))
    slots = torch.randperm(100, generator=torch.Generator().manual_seed(seed))[: sum(LENGTHS)]
    edges = torch.tensor([0, *LENGTHS]).cumsum(0)
    return keys, values, LoneRows(len(LENGTHS), slots, edges), slots[edges[1:] - 1].contiguous()


def decoded_alike(broken, kernels, given: LayerWeights, has_adapters: bool) -> bool:
    """Whether the one call of `broken` leaves and gives the bits that the calls of `kernels` do."""
    rows = len(LENGTHS)
    x, cos, sin = (random(rows, width, seed=seed) for seed, width in enumerate((SIZE, HEAD, HEAD)))
    added = layer_adapters(adapters(rows) if has_adapters else [None] * 4)
    layer = LayerKernel(kernels, given)
    keys, values, lone, into = story(5)
    heads, rotated = layer.enter(x, cos, sin, added)
    kernels.store(rotated[:, QUERY_HEADS:], heads[:, -KV_HEADS:], keys, values, into)
    query = rotated[:, :QUERY_HEADS].contiguous()
    mixed = kernels.attend(query, keys, values, lone.slots, lone.edges, 0.3).view(rows, -1)
    right = layer.leave(x, mixed, added)
    mine, theirs, *_ = story(5)
    found = LayerKernel(broken, given).decode(x, cos, sin, mine, theirs, into, lone, 0.3, added)
    return all(map(torch.equal, (found, mine, theirs), (right, keys, values)))


@pytest.mark.parametrize(
    ("has_bias", "is_int8", "has_head_norms", "has_adapters"), [*product([False, True], repeat=4)]
)
def test_one_call_gives_the_bits_of_those_it_stands_for(kernels, has_bias, is_int8, has_head_norms, has_adapters):
    assert decoded_alike(kernels, kernels, weights(has_bias, is_int8, has_head_norms), has_adapters)


@pytest.mark.parametrize(("right", "wrong"), [
    ("store_f32(rotated + l->query_heads * l->head", "store_f32(rotated"),
    ("heads + rotated_width, keys", "heads, keys"), ("mixed, slots, edges, rows", "mixed, into, edges, 0 * rows"),
    ("rotated_width, head_stride, slot_stride, scale", "mixed_width, head_stride, slot_stride, scale"),
    ("leave_layer(l, added, spans, x, mixed, out", "leave_layer(l, NULL, spans, x, mixed, out"),
])
def test_one_call_that_is_wrong_gives_other_bits(kernels, compiled_from, right, wrong):
    assert not decoded_alike(compiled_from("layer.c", right, wrong), kernels, weights(True, False, True), True)


def test_a_lone_token_reads_its_own_story_alone(kernels):
    """NaN in one row, in its story and in all slots of nobody stays with that row."""
    layer, added = LayerKernel(kernels, weights(True, False, True)), layer_adapters(adapters(len(LENGTHS)))
    x, cos, sin = (random(len(LENGTHS), width, seed=seed) for seed, width in enumerate((SIZE, HEAD, HEAD)))
    keys, values, lone, into = story(5)
    right = layer.decode(x, cos, sin, keys, values, into, lone, 0.3, added)
    keys, values, *_ = story(5)
    sick = 3
    theirs = torch.cat([lone.slots[: lone.edges[sick]], lone.slots[lone.edges[sick + 1] :]])
    foreign = torch.ones(100, dtype=torch.bool)
    foreign[theirs] = False
    x[sick], keys[foreign], values[foreign] = float("nan"), float("nan"), float("nan")
    found = layer.decode(x, cos, sin, keys, values, into, lone, 0.3, added)
    rest = torch.arange(len(LENGTHS)) != sick
    assert found[sick].isnan().all()
    assert torch.equal(found[rest], right[rest])
