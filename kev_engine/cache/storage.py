"""KVStorage: the tensors that hold keys and values, and how a sequence's part of them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kev_engine.cache.blocks import ZERO_BLOCK
from kev_engine.cache.int8 import SCALE_DTYPE, dequantize, quantize
from kev_engine.native.kernels import Kernels


@dataclass(frozen=True)
class KVShape:
    """What one token costs: `num_layers` × 2 × `num_kv_heads` × `head_dim` numbers, and in int8 a scale for each head.

    `dtype` is what the model computes in; `kv_dtype` what keys and values are kept in, None = the same.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    kv_dtype: torch.dtype | None = None

    @property
    def stored(self) -> torch.dtype:
        """The dtype keys and values are kept in."""
        return self.dtype if self.kv_dtype is None else self.kv_dtype

    @property
    def is_quantized(self) -> bool:
        return self.stored == torch.int8

    @property
    def bytes_per_token(self) -> int:
        scale = SCALE_DTYPE.itemsize if self.is_quantized else 0
        return 2 * self.num_layers * self.num_kv_heads * (self.head_dim * self.stored.itemsize + scale)


class KVStorage:
    """Keys and values of all layers, `keys[l]` and `values[l]` each `[num_blocks × block_size, Hkv, D]`.

    In int8, `key_scales[l]` and `value_scales[l]` `[slots, Hkv]` belong to them; else these lists are empty. What is
    read is always what was stored, also in the step that stored it, so that chunks and sharing change no answer.

    Slot = block × block_size + offset. Memory is reserved at once and touched as blocks are written.
    """

    def __init__(
        self, shape: KVShape, num_blocks: int, block_size: int, device: torch.device, kernels: Kernels | None = None
    ) -> None:
        self.shape = shape
        self.kernels = kernels if shape.stored == shape.dtype == torch.float32 else None
        self.block_size = block_size
        self.num_blocks = num_blocks
        heads = (num_blocks * block_size, shape.num_kv_heads)
        self.device = device

        def reserve(*size: int, dtype: torch.dtype) -> list[torch.Tensor]:
            if device.type == "cpu":
                # Head by head in memory: a head's keys lie in one piece, which attention on the CPU reads faster.
                size = (size[1], size[0], *size[2:])
                return [torch.empty(size, dtype=dtype).transpose(0, 1) for _ in range(shape.num_layers)]
            return [torch.empty(size, dtype=dtype, device=device) for _ in range(shape.num_layers)]

        self.keys = reserve(*heads, shape.head_dim, dtype=shape.stored)
        self.values = reserve(*heads, shape.head_dim, dtype=shape.stored)
        self.key_scales = reserve(*heads, dtype=SCALE_DTYPE) if shape.is_quantized else []
        self.value_scales = reserve(*heads, dtype=SCALE_DTYPE) if shape.is_quantized else []
        zero = slice(ZERO_BLOCK * block_size, (ZERO_BLOCK + 1) * block_size)
        for tensor in self.tensors:
            tensor[zero] = 0

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Everything a slot consists of, over all layers."""
        return [*self.keys, *self.values, *self.key_scales, *self.value_scales]

    @property
    def bytes_per_block(self) -> int:
        return self.shape.bytes_per_token * self.block_size

    def write(self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Store `key` and `value`, `[T, Hkv, D]`, at `slots`, `[T]`."""
        if self.shape.is_quantized:
            key, key_scales = quantize(key)
            value, value_scales = quantize(value)
            self.key_scales[layer].index_copy_(0, slots, key_scales)
            self.value_scales[layer].index_copy_(0, slots, value_scales)
        if self.kernels is not None:
            self.kernels.store(key, value, self.keys[layer], self.values[layer], slots)
            return
        self.keys[layer].index_copy_(0, slots, key.to(self.shape.stored))
        self.values[layer].index_copy_(0, slots, value.to(self.shape.stored))

    def read(self, layer: int, where: KeyRange) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values there, `[K, Hkv, D]` each, in the model's dtype; views where nothing is converted."""
        key, value = where.read(self.keys[layer]), where.read(self.values[layer])
        dtype = self.shape.dtype
        if self.shape.is_quantized:
            key = dequantize(key, where.read(self.key_scales[layer]), dtype)
            value = dequantize(value, where.read(self.value_scales[layer]), dtype)
        return key.to(dtype), value.to(dtype)

    def copy_block(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first `num_tokens` tokens of one block to another: the write half of copy-on-write."""
        first, second = source * self.block_size, target * self.block_size
        for tensor in self.tensors:
            tensor[second : second + num_tokens] = tensor[first : first + num_tokens]

    def fill(self, blocks: Sequence[int], value: float) -> None:
        """Overwrite whole blocks with one number, for the poison proof."""
        if not blocks:
            return
        slots = torch.tensor(blocks)[:, None] * self.block_size + torch.arange(self.block_size)
        self.fill_slots(slots.flatten(), value)

    def fill_slots(self, slots: torch.Tensor, value: float) -> None:
        """Overwrite single slots with one number."""
        slots = slots.to(self.device)
        for tensor in (*self.keys, *self.values):
            tensor[slots] = 1 if self.shape.is_quantized else value
        for tensor in (*self.key_scales, *self.value_scales):
            tensor[slots] = value


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
