"""int8 weights for a model: its Linear modules, and the embedding that shares its matrix with the output.

A row of numbers that enters is never rounded together with another: its scale is its own (native/int8.c), or,
without the kernels, it is not rounded at all. So no neighbour can move an answer by a bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kev_engine.models.mapping import MappedWeights
from kev_engine.models.products import Joined, LeanLinear
from kev_engine.native.groups import Groups, round_groups
from kev_engine.native.kernels import Kernels


class Int8Embedding(nn.Embedding):
    """An embedding over rows of int8."""

    def __init__(self, like: nn.Embedding, weight: nn.Parameter, groups: Groups) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = like.num_embeddings, like.embedding_dim
        self.padding_idx = like.padding_idx
        self.weight = weight
        self.groups = groups

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        flat = ids.reshape(-1)
        mine = Groups(self.groups.scale[flat], self.groups.base[flat])
        return mine.weight(self.weight[flat]).view(*ids.shape, -1)


@torch.inference_mode(False)
@torch.no_grad()
def use_int8(model: Any, kernels: Kernels | None = None, mapped: MappedWeights | None = None) -> None:
    """Round the weights of all Linear modules of `model`, in place; an embedding that shares its matrix with the output
    is rounded with it. Everything else (norms, stacked experts, other embeddings) stays as it is. What was rounded is
    given back where it lies in a `mapped` file."""
    for parent in list(model.modules()):
        for joined in [child for child in parent.children() if isinstance(child, Joined)]:
            joined.weight, joined.groups = round_groups(joined.weight)
            for name, mine in joined.parts.items():
                _put(parent, name, _frozen(joined.weight[mine]), joined.groups.of(mine), kernels)
    rounded: dict[torch.Tensor, tuple[nn.Parameter, Groups]] = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and module.weight.dtype != torch.int8:
            parent, _, last = name.rpartition(".")
            before = module.weight
            whole, groups = round_groups(before)
            rounded[before] = _frozen(whole), groups
            if mapped is not None:
                mapped.give_back(before)
            _put(model.get_submodule(parent), last, *rounded[before], kernels)
    table = model.get_input_embeddings()
    if type(table) is nn.Embedding and table.weight in rounded:
        model.set_input_embeddings(Int8Embedding(table, *rounded[table.weight]))


def has_int8(model: nn.Module) -> bool:
    """Whether weights of this model are int8."""
    return any(parameter.dtype == torch.int8 for parameter in model.parameters())


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights, with the scales and bases of those that are int8."""
    groups = {id(module.groups): module.groups for module in model.modules()
              if isinstance(module, LeanLinear | Int8Embedding) and module.groups is not None}
    return sum(weight.nbytes for weight in model.parameters()) + sum(
        one.scale.nbytes + one.base.nbytes for one in groups.values()
    )


def _frozen(weight: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(weight, requires_grad=False)


def _put(
    parent: nn.Module, name: str, weight: nn.Parameter, groups: Groups, kernels: Kernels | None
) -> None:
    """The Linear of that name with rounded weights in its place."""
    linear = LeanLinear(getattr(parent, name), kernels)
    linear.weight = weight
    linear.groups = groups
    setattr(parent, name, linear)
