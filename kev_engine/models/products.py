"""Matrix products of few rows, and several Linear modules of one input as one product."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import linear

from kev_engine.native.groups import Groups
from kev_engine.native.kernels import Kernels

FEW_ROWS = 32
"""Up to so many rows a product without kernels is not left to the CPU library's usual way."""


def product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kernels: Kernels | None = None,
    groups: Groups | None = None,
) -> torch.Tensor:
    """`x Wᵀ + b`, `[..., out]`, by the kernels, up to as many rows as they are made for.

    With groups the weight is int8 and they say what it is worth; all rows of x go through the kernels then, because
    how a row is rounded must not depend on how many there are. Without kernels up to FEW_ROWS rows are computed weights
    first, as `(W xᵀ)ᵀ`: with a small left side the CPU library is about a fifth faster that way round, and its threads
    share the work without waiting for each other (docs/decisions.md, speed log).
    """
    if groups is not None:
        if kernels is not None:
            return kernels.product_int8(x, weight, groups.scale, groups.base, bias)
        return linear(x, groups.weight(weight), bias)
    num_rows = x.numel() // x.shape[-1]
    if kernels is not None and num_rows <= kernels.most_rows:
        return kernels.product(x, weight, bias)
    if kernels is not None or num_rows == 1 or num_rows > FEW_ROWS:
        return linear(x, weight, bias)
    out = torch.mm(weight, x.reshape(num_rows, -1).t()).t().contiguous()  # [rows, out]
    if bias is not None:
        out += bias
    return out.view(*x.shape[:-1], len(weight))


class LeanLinear(nn.Linear):
    """A Linear over the same parameters, by `product`; with `groups` its weight is int8."""

    def __init__(self, like: nn.Linear, kernels: Kernels | None) -> None:
        nn.Module.__init__(self)
        self.groups: Groups | None = None
        self.in_features, self.out_features = like.in_features, like.out_features
        self.weight, self.bias = like.weight, like.bias
        self.kernels = kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self.weight, self.bias, self.kernels, self.groups)


class Joined(nn.Module):
    """Several Linear modules of one input as one product, `[..., out]`, their outputs side by side.

    `parts[name]` says which columns are whose. The modules stay where they are, their weights as rows of the joint one,
    so both ways of computing use the same memory, and an adapter for `name` finds its module and its columns.
    """

    def __init__(self, linears: Mapping[str, nn.Linear], kernels: Kernels | None) -> None:
        super().__init__()
        self.kernels = kernels
        modules = [*linears.values()]
        # Plain tensors, not parameters: the weights belong to the modules and must not be counted twice.
        self.weight = torch.cat([module.weight for module in modules])
        self.bias = None if modules[0].bias is None else torch.cat([module.bias for module in modules])
        self.groups: Groups | None = None
        self.parts: dict[str, slice] = {}
        start = 0
        for name, module in linears.items():
            mine = self.parts[name] = slice(start, start + module.out_features)
            module.weight = nn.Parameter(self.weight[mine], requires_grad=False)
            if self.bias is not None:
                module.bias = nn.Parameter(self.bias[mine], requires_grad=False)
            start = mine.stop

    @staticmethod
    def can_join(linears: Mapping[str, nn.Module | None]) -> bool:
        """Whether these are Linear modules of one input, all with a bias or all without."""
        modules = [*linears.values()]
        if not all(isinstance(module, nn.Linear) for module in modules):
            return False
        return len({(module.in_features, module.bias is None) for module in modules}) == 1  # type: ignore[union-attr]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return product(x, self.weight, self.bias, self.kernels, self.groups)
