"""Weights that lie in a mapped file: what has been copied elsewhere need not stay in memory."""

from __future__ import annotations

import ctypes
import mmap

import torch

PAGE, DONT_NEED = mmap.PAGESIZE, getattr(mmap, "MADV_DONTNEED", None)


class MappedWeights:
    """The weights of files that were mapped privately and are never written to: a page that was given back is read from
    its file again when somebody looks at it."""

    def __init__(self) -> None:
        # The tensors, not their addresses: a file's memory must not become somebody else's while it is known here.
        self._files: list[list[torch.Tensor]] = []

    def add(self, weights: list[torch.Tensor]) -> None:
        """The weights of one file, as they were loaded."""
        self._files.append(weights)

    def give_back(self, weight: torch.Tensor) -> None:
        """Let go of the pages of memory that hold nothing but this weight, where it lies in one of the files."""
        start, end = weight.data_ptr(), weight.data_ptr() + weight.nbytes
        first, last = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if DONT_NEED is None or not weight.is_contiguous() or first >= last:
            return
        for weights in self._files:
            if any(one.data_ptr() <= start and end <= one.data_ptr() + one.nbytes for one in weights):
                ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), DONT_NEED)
