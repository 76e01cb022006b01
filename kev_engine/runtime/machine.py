"""Machine: how fast this device multiplies and how fast it reads, measured in a moment; the two roofs of a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

SIDE = 1024
READ_BYTES = 256 << 20
"""More than a processor's caches hold."""
ROUNDS = 5


@dataclass(frozen=True)
class Machine:
    """What the device reaches in the model's dtype: floating-point operations and bytes read, each a second."""

    flops_per_second: float
    bytes_per_second: float

    @property
    def balance(self) -> float:
        """Operations for each byte read at which neither roof waits for the other (Williams et al. 2009)."""
        return self.flops_per_second / self.bytes_per_second


def measure(device: torch.device, dtype: torch.dtype) -> Machine:
    """The best of a few rounds of a square product, and of a product of one row with a matrix that is read through.

    Takes well under a second. The second is what decoding does: every weight is read for one multiplication.
    """
    square = torch.randn(SIDE, SIDE, device=device).to(dtype)
    columns = READ_BYTES // (4 * SIDE * dtype.itemsize)
    tall = torch.zeros(columns, 4 * SIDE, device=device, dtype=dtype)
    row = torch.zeros(4 * SIDE, device=device, dtype=dtype)
    flops = 2 * SIDE**3 / _best(lambda: square @ square, device)
    return Machine(flops, tall.nbytes / _best(lambda: tall @ row, device))


def _best(work: Callable[[], torch.Tensor], device: torch.device) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
