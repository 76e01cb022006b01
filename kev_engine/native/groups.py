"""A weight in whole numbers of 8 bits, with a scale and a base for each 32 numbers of a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from kev_engine.native.kernels import GROUP

LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True, eq=False)
class Groups:
    """Scale and base `[out, groups]` of each group: w = scale · q + base."""

    scale: torch.Tensor
    base: torch.Tensor

    def of(self, rows: slice) -> Groups:
        """Those of some of the rows."""
        return Groups(self.scale[rows], self.base[rows])

    def weight(self, whole: torch.Tensor) -> torch.Tensor:
        """The numbers that `whole` `[rows, in]` int8 stands for, in the dtype of the scale."""
        rows, width = whole.shape
        wide = pad(whole, (0, self.scale.shape[1] * GROUP - width)).view(rows, -1, GROUP).to(self.scale.dtype)
        return (wide * self.scale.unsqueeze(2) + self.base.unsqueeze(2)).view(rows, -1)[:, :width]


def round_groups(weight: torch.Tensor) -> tuple[torch.Tensor, Groups]:
    """`weight` `[out, in]` as int8, and what its groups are worth: from their least to their greatest number."""
    rows, width = weight.shape
    wide = pad(weight.float(), (0, -width % GROUP), mode="replicate").view(rows, -1, GROUP)
    least, greatest = wide.aminmax(dim=2)
    scale = (greatest - least) / (HIGHEST - LOWEST)
    steps = (wide - least.unsqueeze(2)) / torch.where(scale > 0, scale, 1.0).unsqueeze(2)
    whole = (steps.round_() + LOWEST).to(torch.int8).view(rows, -1)[:, :width].contiguous()
    return whole, Groups(scale.to(weight.dtype), (least - LOWEST * scale).to(weight.dtype))
