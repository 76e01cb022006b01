"""The compiled kernels against what torch does instead, on the sizes of the embedded model.

    python -m benchmarks.kernels [--rounds 30]

One thread, its processor time, the two in turn; medians, and the median of the ratios of each round.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from kev_engine.config import cache_home
from kev_engine.models.products import product
from kev_engine.native.kernels import Kernels, load_kernels
from kev_engine.native.layers import LayerKernel, LayerWeights, Norm, Weights

HIDDEN, WIDE, HEADS, KV_HEADS, SIZE, KEYS = 576, 1536, 9, 3, 64, 288
ROWS = (1, 8, 32, 2074)
FEW, MANY = ROWS[:-1], ROWS[1::2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kernels = load_kernels(cache_home(os.environ))
    norm, gate_up = torch.randn(HIDDEN), torch.randn(30, 2 * WIDE, HIDDEN)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    for rows in FEW:
        x = torch.randn(rows, HIDDEN)
        # Thirty layers' weights, so that they come from memory as they do in a step.
        for name, usual in (("Linear", linear), ("weights first", product)):
            pairs[f"product, {rows} rows, against {name}"] = (
                lambda x=x: [kernels.product(x, weight) for weight in gate_up],
                lambda x=x, usual=usual: [usual(x, weight, None) for weight in gate_up],
            )
    for rows in MANY:
        x, both = torch.randn(rows, HIDDEN), torch.randn(rows, 2 * WIDE)
        pairs[f"norm, {rows} rows"] = (
            lambda x=x: kernels.norm(x, norm, 1e-5), lambda x=x: rms_norm(x, (HIDDEN,), norm, 1e-5)
        )
        pairs[f"gate, {rows} rows"] = (
            lambda both=both: kernels.gate(both), lambda both=both: silu(both[:, :WIDE]).mul_(both[:, WIDE:])
        )
    keys, values = torch.randn(2, KV_HEADS, 8 * KEYS, SIZE)
    query, slots, edges = torch.randn(8, HEADS, SIZE), torch.arange(8 * KEYS), torch.arange(9) * KEYS
    pairs[f"attention, 8 rows of {KEYS} keys"] = (
        lambda: kernels.attend(query, keys.transpose(0, 1), values.transpose(0, 1), slots, edges, 0.125),
        lambda: [
            scaled_dot_product_attention(
                query[None, row].view(1, KV_HEADS, -1, SIZE), keys[None, :, row * KEYS : (row + 1) * KEYS],
                values[None, :, row * KEYS : (row + 1) * KEYS], scale=0.125,
            ) for row in range(8)
        ],
    )
    for rows in MANY:
        pairs[f"layer but its attention, {rows} rows, against its kernels one by one"] = _layer(kernels, rows)
    print("| what | kernel, ms | instead, ms | instead by kernel |\n|---|---|---|---|")
    for name, pair in pairs.items():
        spent = [[_milliseconds(run) for run in pair] for _ in range(rounds + 1)][1:]
        ours, theirs = (median(column) for column in zip(*spent, strict=True))
        ratio = median(there / here for here, there in spent)
        print(f"| {name} | {ours:.3f} | {theirs:.3f} | {ratio:.2f} |", flush=True)


def _layer(kernels: Kernels, rows: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """What stands around a layer's attention, in two calls and kernel by kernel."""
    heads = HEADS + 2 * KV_HEADS
    sizes = ((heads * SIZE, HIDDEN), (HIDDEN, HEADS * SIZE), (2 * WIDE, HIDDEN), (HIDDEN, WIDE))
    qkv, out, gate_up, down = (torch.randn(size) / 20 for size in sizes)
    norm = Norm(torch.ones(HIDDEN), 1e-5)
    weights = tuple(Weights(weight, None, None) for weight in (qkv, out, gate_up, down))
    layer = LayerKernel(kernels, LayerWeights(weights, (norm, norm), SIZE))
    x, mixed, cos = torch.randn(rows, HIDDEN), torch.randn(rows, HEADS * SIZE), torch.randn(rows, SIZE)

    def together() -> None:
        layer.enter(x, cos, cos)
        layer.leave(x, mixed)

    def one_by_one() -> None:
        together = kernels.product(kernels.norm(x, norm.weight, norm.eps), qkv).view(rows, heads, SIZE)
        kernels.rotate(together[:, : HEADS + KV_HEADS], cos, cos)
        h = x + kernels.product(mixed, out)
        both = kernels.product(kernels.norm(h, norm.weight, norm.eps), gate_up)
        h + kernels.product(kernels.gate(both), down)

    return together, one_by_one


def _milliseconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return (time.thread_time() - start) * 1e3


if __name__ == "__main__":
    main()
