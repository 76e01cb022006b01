"""Keys and values in int8: one scale for each token and head, so that nobody's rounding depends on a neighbour."""

from __future__ import annotations

import torch

LARGEST_CODE = 127
SCALE_DTYPE = torch.float32


def quantize(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`[T, Hkv, D]` as int8 codes and scales `[T, Hkv]`: number ≈ code × scale, off by at most half a scale.

    A row that holds a NaN or an infinity gets a scale that makes all of it NaN when read.
    """
    numbers = numbers.float()
    largest = numbers.abs().amax(dim=-1)  # [T, Hkv]
    scales = largest / LARGEST_CODE
    codes = (numbers / scales.clamp(min=torch.finfo(SCALE_DTYPE).tiny)[..., None]).round()
    scales = torch.where(largest.isfinite(), scales, torch.nan)
    return codes.nan_to_num(0.0).clamp(-LARGEST_CODE, LARGEST_CODE).to(torch.int8), scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers `[T, Hkv, D]` behind codes and scales."""
    return (codes * scales[..., None]).to(dtype)
