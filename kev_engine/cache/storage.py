"""KVStorage: the tensors that hold keys and values, and how a sequence's part of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kev_engine.cache.blocks import ZERO_BLOCK


@dataclass(frozen=True)
class KVShape:
    """What one token costs: `layers` × 2 × `num_kv_heads` × `head_dim` numbers of `dtype`."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVStorage:
    """Keys and values of all layers, `keys[l]` and `values[l]` each `[num_blocks × block_size, Hkv, D]`.

    Slot = block × block_size + offset. Memory is reserved at once and touched as blocks are written.
    """

    def __init__(self, shape: KVShape, num_blocks: int, block_size: int, device: torch.device) -> None:
        self.shape = shape
        self.block_size = block_size
        self.num_blocks = num_blocks
        size = (num_blocks * block_size, shape.num_kv_heads, shape.head_dim)
        self.device = device
        self.keys = [torch.empty(size, dtype=shape.dtype, device=device) for _ in range(shape.num_layers)]
        self.values = [torch.empty(size, dtype=shape.dtype, device=device) for _ in range(shape.num_layers)]
        zero = slice(ZERO_BLOCK * block_size, (ZERO_BLOCK + 1) * block_size)
        for tensor in (*self.keys, *self.values):
            tensor[zero] = 0

    @property
    def bytes_per_block(self) -> int:
        return self.shape.bytes_per_token * self.block_size

    def write(self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store `key` and `value`, `[T, Hkv, D]`, at `slots`, `[T]`."""
        self.keys[layer].index_copy_(0, slots, key)
        self.values[layer].index_copy_(0, slots, value)

    def copy_block(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first `num_tokens` tokens of one block to another: the write half of copy-on-write."""
        first, second = source * self.block_size, target * self.block_size
        for tensor in (*self.keys, *self.values):
            tensor[second : second + num_tokens] = tensor[first : first + num_tokens]

    def fill(self, blocks: Sequence[int], value: float) -> None:
        """Overwrite whole blocks with one number, for the poison proof."""
        if not blocks:
            return
        slots = torch.tensor(blocks)[:, None] * self.block_size + torch.arange(self.block_size)
        self.fill_slots(slots.flatten(), value)

    def fill_slots(self, slots: torch.Tensor, value: float) -> None:
        """Overwrite single slots with one number."""
        for tensor in (*self.keys, *self.values):
            tensor[slots.to(tensor.device)] = value


@dataclass(frozen=True)
class KeyRange:
    """Where the keys of one sequence lie: a contiguous run of slots `[start, end)`, or `slots` one by one."""

    start: int
    end: int
    slots: torch.Tensor | None = None

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sequence's rows of a storage tensor, `[K, Hkv, D]`: a view where the run is contiguous, else a copy."""
        return tensor[self.start : self.end] if self.slots is None else tensor.index_select(0, self.slots)

    def indexes(self, device: torch.device) -> torch.Tensor:
        """The slots one by one, `[K]`."""
        return torch.arange(self.start, self.end, device=device) if self.slots is None else self.slots


def key_range(
    block_table: Sequence[int], first: int, end: int, block_size: int, device: torch.device
) -> KeyRange:
    """The slots of story positions `first` … `end` − 1 of a sequence with this block table."""
    used = block_table[first // block_size : -(-end // block_size)]
    if all(block == used[0] + index for index, block in enumerate(used)):
        start = used[0] * block_size + first % block_size if used else 0
        return KeyRange(start, start + end - first)
    positions = torch.arange(first, end)
    slots = torch.tensor(block_table)[positions // block_size] * block_size + positions % block_size
    return KeyRange(0, 0, slots.to(device))
