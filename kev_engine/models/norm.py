"""An RMSNorm in one operator instead of six."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import rms_norm

from kev_engine.native.kernels import Kernels


class OneStepNorm(nn.Module):
    """An RMSNorm over the same weight in one operator."""

    def __init__(self, weight: nn.Parameter, eps: float, kernels: Kernels | None) -> None:
        super().__init__()
        self.weight = weight
        self.variance_epsilon = eps
        self.kernels = kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kernels is not None:
            return self.kernels.norm(x, self.weight, self.variance_epsilon)
        return rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)
