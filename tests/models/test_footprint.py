"""The planner's arithmetic: golden values, and the same numbers counted one by one."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kev_engine.errors import InvalidField
from kev_engine.models.footprint import BITS, GB, GIB, Footprint, LayerShape, MaskBytes, ModelShape

ROOT = Path(__file__).parents[2]


def footprint(layers: int, heads: int, kv_heads: int, size: int = 128, **changes: object) -> Footprint:
    shape = ModelShape("m", (LayerShape(heads, kv_heads, size, size),) * layers, num_parameters=10**9)
    given: dict[str, object] = {"weight_dtype": "bfloat16", "kv_dtype": "bfloat16", "device_bytes": 80 * GIB}
    return Footprint(shape, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("layers", "heads", "kv_heads", "per_token", "at_8k"), [
    (80, 64, 8, 327_680, 2.5),
    (80, 64, 64, 2_621_440, 20),
    (32, 32, 32, 524_288, 4),
])
def test_golden_bytes_a_token_and_at_8k(
    layers: int, heads: int, kv_heads: int, per_token: int, at_8k: float
) -> None:
    found = footprint(layers, heads, kv_heads)
    assert found.bytes_per_token == per_token
    assert found.kv_bytes(8192) == at_8k * GIB
    assert sum(found.bytes_by_layer) == per_token


def test_the_formula_is_shown_in_numbers() -> None:
    assert footprint(32, 32, 32).formula == "2 × 32 × 32 × 128 × 2 = 524,288"
    assert footprint(2, 4, 1, 8, kv_dtype="int4").formula == "2 × 2 × 1 × 8 × 4/8 = 16"
    mixed = ModelShape("m", (LayerShape(8, 2, 16, 16), LayerShape(8, 2, 16, 8, window=4)))
    shown = Footprint(mixed, "float16", "float16", GB).formula
    assert shown == "(2 × 1 × 2 × 16 + 1 × 2 × (16 + 8)) × 2 = 224"


def test_what_shared_key_heads_save() -> None:
    found = footprint(80, 64, 8)
    assert found.bytes_without_sharing == 8 * found.bytes_per_token
    assert footprint(80, 64, 64).bytes_without_sharing == footprint(80, 64, 64).bytes_per_token


def test_gb_and_gib_are_not_the_same() -> None:
    in_gb, in_gib = (footprint(1, 1, 1, device_bytes=80 * unit).usable_bytes for unit in (GB, GIB))
    assert in_gib - in_gb == 80 * 73_741_824
    assert (GB, GIB) == (1_000_000_000, 1_073_741_824)


def random_shape(chance: random.Random) -> ModelShape:
    layers = []
    for _ in range(chance.randint(1, 6)):
        kv_heads = chance.randint(1, 4)
        layers.append(LayerShape(kv_heads * chance.randint(1, 4), kv_heads, chance.randint(1, 9), chance.randint(1, 9),
                                 chance.choice([None, chance.randint(1, 20)]), chance.random() < 0.2))
    return ModelShape("m", tuple(layers), chance.choice([None, chance.randint(1, 500)]))


@pytest.mark.parametrize("seed", range(60))
def test_bytes_are_those_counted_number_by_number(seed: int) -> None:
    chance = random.Random(seed)
    shape = random_shape(chance)
    found = Footprint(shape, "int8", chance.choice(list(BITS)), chance.randint(1, 20_000), chance.choice([1.0, 0.5]))
    context, count = chance.randint(1, 40), chance.randint(1, 5)
    numbers = 0
    for layer in shape.layers:
        for position in range(context):
            is_kept = layer.window is None or position >= context - layer.window
            if is_kept and not layer.reuses:
                numbers += sum(layer.key_size + layer.value_size for _ in range(layer.num_kv_heads))
    assert found.kv_bytes(context) == -(-numbers * BITS[found.kv_dtype] // 8)
    assert found.kv_bytes_whole(context) >= found.kv_bytes(context)
    cell = found.cell(context, count)
    assert cell.kv_bytes == count * found.kv_bytes(context)
    largest = found.largest_batch(context)
    if shape.num_parameters is None:
        assert (cell.total_bytes, cell.fits, largest) == (None, None, None)
        return
    assert cell.total_bytes == shape.num_parameters + cell.kv_bytes
    assert largest is not None
    if 0 < largest < 2**31:
        assert found.cell(context, largest).fits
        assert not found.cell(context, largest + 1).fits
    if largest == 0:
        assert not found.cell(context, 1).fits


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_context_fits_and_one_more_does_not(seed: int) -> None:
    chance = random.Random(seed)
    shape = random_shape(chance)
    found = Footprint(shape, "int8", "int8", chance.randint(400, 9_000))
    longest = found.longest_context(2)
    if longest is None:
        assert shape.num_parameters is None
    elif longest == 0:
        assert not found.cell(1, 2).fits
    else:
        assert found.cell(longest, 2).fits
        assert longest == 2**31 or not found.cell(longest + 1, 2).fits


def test_a_mask_as_a_matrix_and_as_boundaries() -> None:
    found = MaskBytes(8, 4096)
    assert found.dense_bool == (8 * 4096) ** 2
    assert found.dense_additive("float32") == 4 * found.dense_bool
    assert found.cu_seqlens == 9 * 4


@pytest.mark.parametrize(("changes", "field"), [
    ({"weight_dtype": "float7"}, "weight_dtype"), ({"kv_dtype": ""}, "kv_dtype"), ({"device_bytes": 0}, "device_bytes"),
    ({"usable": 0.0}, "usable"), ({"usable": 1.1}, "usable"),
])
def test_what_cannot_be_is_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        footprint(1, 1, 1, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(("context", "count", "field"), [(0, 1, "context"), (2**31 + 1, 1, "context"),
                                                        (1, 0, "concurrency")])
def test_counts_are_whole_and_positive(context: int, count: int, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        footprint(1, 1, 1).cell(context, count)
    assert caught.value.field == field


def test_the_arithmetic_starts_without_torch_and_transformers() -> None:
    program = ("import sys; import kev_engine.models.footprint; "
               "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
