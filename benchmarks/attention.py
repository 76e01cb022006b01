"""How eight decode rows read their keys: a call a sequence on views, one padded call on a view, one after a gather.

    python benchmarks/attention.py

Shapes of the embedded model: 9 query and 3 key heads of 64, stories of 107 to 455 tokens, one layer. Prints the median
of interleaved rounds, in ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

LENGTHS = (107, 150, 200, 250, 300, 350, 400, 455)
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
STRIDE = 464
ROUNDS, CALLS = 15, 30


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    sequences, widest = len(LENGTHS), max(LENGTHS)
    keys, values = torch.randn(2, sequences * STRIDE, KV_HEADS, HEAD_DIM)
    query = torch.randn(sequences, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
    lengths = torch.tensor(LENGTHS)
    bias = torch.where(torch.arange(widest)[None] < lengths[:, None], 0.0, float("-inf"))[:, None, None]
    slots = (torch.arange(sequences)[:, None] * STRIDE + torch.arange(widest)).flatten()

    def view(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(sequences, STRIDE, KV_HEADS, HEAD_DIM)[:, :widest].transpose(1, 2)

    def gathered(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.index_select(0, slots).view(sequences, widest, KV_HEADS, HEAD_DIM).transpose(1, 2)

    def by_sequence() -> torch.Tensor:
        key, value = view(keys), view(values)
        return torch.cat([
            attend(query[row : row + 1], key[row : row + 1, :, :length], value[row : row + 1, :, :length])
            for row, length in enumerate(LENGTHS)
        ])

    ways: dict[str, Callable[[], torch.Tensor]] = {
        "a call a sequence, views": by_sequence,
        "one padded call, view": lambda: attend(query, view(keys), view(values), bias),
        "one padded call, gather": lambda: attend(query, gathered(keys), gathered(values), bias),
    }
    right = by_sequence()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            assert (way() - right).abs().max() < 1e-5, name
            start = time.perf_counter()
            for _ in range(CALLS):
                way()
            times[name].append((time.perf_counter() - start) * 1e3 / CALLS)
    for name, taken in times.items():
        print(f"{name:28} {median(taken):6.2f} ms a layer")


if __name__ == "__main__":
    main()
