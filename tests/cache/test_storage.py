"""KVStorage in every dtype: what is written, read, copied and poisoned, and what it costs."""

import numpy as np
import pytest
import torch

from kev_engine.cache.int8 import dequantize, quantize
from kev_engine.cache.storage import KeyRange, KVShape, KVStorage

CPU = torch.device("cpu")
PAIRS = [
    (torch.float32, None), (torch.float32, torch.bfloat16), (torch.float32, torch.int8), (torch.bfloat16, torch.int8),
    (torch.bfloat16, torch.float32), (torch.float16, None), (torch.float16, torch.int8),
]
STEP = {torch.float32: 0.0, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.int8: 0.5 / 127}
"""The largest rounding error, in parts of the largest number of the row."""


def storage(dtype, kv_dtype, layers=1):
    return KVStorage(KVShape(layers, 2, 8, dtype, kv_dtype), num_blocks=4, block_size=4, device=CPU)


def rows(count, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = torch.logspace(-3, 3, count)[:, None, None]  # tokens of very different sizes
    return (torch.randn(2, count, 2, 8, generator=generator) * size).to(dtype)


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
def test_what_is_read_is_what_was_written_up_to_the_stored_dtypes_step(dtype, kv_dtype):
    kept = storage(dtype, kv_dtype)
    key, value = rows(8, dtype)
    kept.write(0, torch.arange(4, 12), key, value)
    for where in (KeyRange(4, 12), KeyRange(0, 0, torch.arange(4, 12))):
        for given, read in zip((key, value), kept.read(0, where), strict=True):
            assert read.dtype == dtype
            largest = given.float().abs().amax(dim=-1, keepdim=True)
            assert ((read.float() - given.float()).abs() <= largest * (STEP[kept.shape.stored] + STEP[dtype])).all()


def test_nothing_is_copied_where_nothing_is_converted():
    kept = storage(torch.float32, None)
    key, _ = kept.read(0, KeyRange(4, 12))
    assert key.data_ptr() == kept.keys[0][4].data_ptr()


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.int8])
def test_a_row_is_rounded_by_itself(kv_dtype):
    """The reason for a scale a token and head: what is written beside a row, however large, changes no bit of it."""
    alone, packed = storage(torch.float32, kv_dtype), storage(torch.float32, kv_dtype)
    key, value = rows(3, torch.float32)
    alone.write(0, torch.tensor([5]), key[1:2], value[1:2])
    key[[0, 2]] *= 1e6
    packed.write(0, torch.tensor([4, 5, 6]), key, value)
    for mine, same in zip(alone.read(0, KeyRange(5, 6)), packed.read(0, KeyRange(5, 6)), strict=True):
        assert torch.equal(mine, same)
    key[1, 0] *= 1e6
    packed.write(0, torch.tensor([4, 5, 6]), key, value)
    other_head = [kept.read(0, KeyRange(5, 6))[0][0, 1] for kept in (alone, packed)]
    assert torch.equal(*other_head)


def test_one_scale_for_a_tensor_would_couple_neighbours():
    """The mutation of the test above: with the scale of the largest row, a row changes with its neighbour."""
    key, _ = rows(2, torch.float32)
    codes = [torch.round(key[0] / (part.abs().max() / 127)) for part in (key[:1], key)]
    assert not torch.equal(*codes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays_none_and_harms_one_row(value):
    numbers = rows(3, torch.float32)[0]
    numbers[1, 0, 3] = value
    back = dequantize(*quantize(numbers), torch.float32)
    assert back[1, 0].isnan().all()
    assert back[[0, 2]].isfinite().all()
    assert back[1, 1].isfinite().all()


def test_zeros_and_the_smallest_numbers_are_finite():
    numbers = torch.tensor([0.0, 1e-45, -1e-45, 1e-38, 0, 0, 0, 0]).expand(1, 2, 8)
    back = dequantize(*quantize(numbers), torch.float32)
    assert (back - numbers).abs().max() <= 1e-38


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
def test_bytes_per_token_are_those_of_the_tensors(dtype, kv_dtype):
    kept = storage(dtype, kv_dtype, layers=3)
    held = sum(tensor.nbytes for tensor in kept.tensors)
    assert held == kept.shape.bytes_per_token * 16 == kept.bytes_per_block * 4


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
def test_copies_fills_and_the_zero_block(dtype, kv_dtype):
    kept = storage(dtype, kv_dtype, layers=2)
    key, value = rows(4, dtype)
    for layer in range(2):
        kept.write(layer, torch.arange(4, 8), key, value)
    kept.fill([2], float("nan"))
    kept.copy_block(1, 2, 3)
    for layer in range(2):
        source, target = kept.read(layer, KeyRange(4, 7)), kept.read(layer, KeyRange(8, 11))
        assert all(torch.equal(*pair) for pair in zip(source, target, strict=True))
        assert all(part.isnan().all() for part in kept.read(layer, KeyRange(11, 12)))
        assert all((part == 0).all() for part in kept.read(layer, KeyRange(0, 4)))


def test_int8_keys_cost_little_more_than_a_quarter():
    full, small = (KVShape(30, 3, 64, torch.float32, kv_dtype) for kv_dtype in (None, torch.int8))
    assert np.isclose(small.bytes_per_token / full.bytes_per_token, (64 + 4) / 256)
