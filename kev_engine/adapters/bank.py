"""Bank: the resident adapters of a model as two stacked matrices a module, on the model's device and in its dtype.

Every resident has the same columns `[start, start + width)` in all modules (zeros where it does not target one or has
a smaller rank), so that which token may use which column is decided once a step for the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kev_engine.adapters.settings import computed_in
from kev_engine.adapters.weights import AdapterWeights, LoraPair

RANK_CLASS = 8


@dataclass(frozen=True, eq=False)
class Stack:
    """One module's stacked adapters over C columns: `a` `[in, C]` and `b` `[C, out]`, the scale folded into b."""

    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True, eq=False)
class Joint:
    """The stacks of modules that are computed as one: `a` `[in, P, C]` is theirs side by side.

    `parts` are each one's stack (its `a` is a view of this one's) and its columns of the common output.
    """

    a: torch.Tensor
    parts: tuple[tuple[Stack, slice], ...]


class Bank:
    """Holds at most `size` adapters; owned by the thread that runs the model.

    `stacks` maps module names to their Stack, `joints` the names of modules that compute several of them at once (they
    have `parts`, the output columns of each by its last name) to what they share. `columns` maps resident adapter ids,
    least recently placed first, to their columns. `revision` grows when `stacks` becomes a new mapping.
    """

    def __init__(self, model: nn.Module, size: int) -> None:
        self._model = model
        self.size = size
        self.stacks: dict[str, Stack] = {}
        self.joints: dict[str, Joint] = {}
        self.columns: dict[int, slice] = {}
        self.revision = 0
        self._weights: dict[int, AdapterWeights] = {}
        self._free: list[slice] = []

    @property
    def num_columns(self) -> int:
        return sum(_width(columns) for columns in (*self.columns.values(), *self._free))

    @property
    def num_bytes(self) -> int:
        return sum(stack.a.nbytes + stack.b.nbytes for stack in self.stacks.values())

    def remove(self, adapter_id: int) -> None:
        """Give the adapter's columns free. What they hold stays until they are written again; no token uses it."""
        del self._weights[adapter_id]
        self._free.append(self.columns.pop(adapter_id))

    def place(self, adapter_id: int, weights: AdapterWeights) -> None:
        """Write the adapter into free columns of its rank class, or lay the bank out anew where none fit."""
        self._weights[adapter_id] = weights
        wide = _rank_class(weights)
        fit = [columns for columns in self._free if _width(columns) >= wide]
        # A tensor made under inference_mode could not be written again outside of it.
        with torch.inference_mode(False), torch.no_grad():
            if fit and weights.pairs.keys() <= self.stacks.keys():
                columns = min(fit, key=_width)
                self._free.remove(columns)
                self.columns[adapter_id] = columns
                self._write(adapter_id)
            else:
                self._lay_out()

    def _lay_out(self) -> None:
        start = 0
        self.columns, self._free = {}, []
        for adapter_id, weights in self._weights.items():
            self.columns[adapter_id] = slice(start, start + _rank_class(weights))
            start += _rank_class(weights)
        shapes: dict[str, LoraPair] = {}
        for weights in self._weights.values():
            shapes |= weights.pairs
        self.stacks = {}
        for name, pair in shapes.items():
            like = computed_in(self._model.get_submodule(name))
            self.stacks[name] = Stack(like.new_zeros(pair.a.shape[1], start), like.new_zeros(start, pair.b.shape[0]))
        self._join()
        self.revision += 1
        for adapter_id in self._weights:
            self._write(adapter_id)

    def _join(self) -> None:
        """Let the stacks of modules that are computed together lie together."""
        by_joint: dict[str, list[tuple[str, slice]]] = {}
        for name in self.stacks:
            parent, _, last = name.rpartition(".")
            for child, module in self._model.get_submodule(parent).named_children():
                parts: dict[str, slice] = getattr(module, "parts", {})
                if last in parts:
                    by_joint.setdefault(f"{parent}.{child}", []).append((name, parts[last]))
        self.joints = {}
        for joint, members in by_joint.items():
            first = self.stacks[members[0][0]].a
            a = first.new_zeros(first.shape[0], len(members), first.shape[1])
            for index, (name, _) in enumerate(members):
                self.stacks[name] = Stack(a[:, index], self.stacks[name].b)
            self.joints[joint] = Joint(a, tuple((self.stacks[name], columns) for name, columns in members))

    def _write(self, adapter_id: int) -> None:
        columns, pairs = self.columns[adapter_id], self._weights[adapter_id].pairs
        for name, stack in self.stacks.items():
            stack.a[:, columns].zero_()
            stack.b[columns].zero_()
            if (pair := pairs.get(name)) is not None:
                # As it lies in (pinned) memory first: turned around and cast on the device.
                a, b = (half.to(stack.a.device, non_blocking=True) for half in (pair.a, pair.b))
                stack.a[:, columns][:, : pair.rank].copy_(a.t())
                stack.b[columns][: pair.rank].copy_(b.t() * pair.scale)


def _width(columns: slice) -> int:
    return int(columns.stop - columns.start)


def _rank_class(weights: AdapterWeights) -> int:
    """The adapter's largest rank, rounded up so that adapters of like rank can take each other's place."""
    return -(-max(weights.ranks) // RANK_CLASS) * RANK_CLASS
