"""Router: token-level LoRA inside a transformers model. Each token gets the adapter of its question and no other.

    router = attach(model, pool)
    with router.step(adapter_ids, sample_rows):
        model(...)

Tokens are grouped once a step into pieces, contiguous stretches of the row that every adapted module treats alike:

* a long run of one adapter: two thin products over just its rows and just its columns,
* a mixed stretch (decode rows): by the kernels, each row over its own columns, or without them two products over all
  columns, what is not the token's own set to zero in between.

benchmarks/adapters.py has the numbers behind that choice. Runs of the base belong to no piece, and in a step of base
tokens the model carries no hooks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from kev_engine.adapters.bank import Bank, Joint, Stack
from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.settings import output_embedding
from kev_engine.native.kernels import Kernels
from kev_engine.native.layers import Adapting, Columns

LONG_RUN = 32
"""A run of one adapter of at least so many tokens is a piece of its own."""

Ids = npt.NDArray[np.int32]
Apply = Callable[[torch.Tensor, torch.Tensor, "Grouping"], None]


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of a stretch and the columns of the bank that they use; None means all, and spares a slice.

    `spans` `[rows, 2]` says which of `num_columns` are each token's own, from where to where, and is None where all
    tokens of the piece use all of its columns.
    """

    rows: slice | None
    columns: slice | None
    spans: torch.Tensor | None = None
    num_columns: int = 0

    @cached_property
    def foreign(self) -> torch.Tensor | None:
        """`[rows, C]`: true where a column is not the token's own; None with `spans`."""
        if self.spans is None:
            return None
        columns = torch.arange(self.num_columns, device=self.spans.device)
        return (columns < self.spans[:, :1]) | (columns >= self.spans[:, 1:])


@dataclass(frozen=True)
class Grouping:
    """The pieces of a row of `num_rows` tokens; a run of one adapter of `long_run` tokens is a piece of its own."""

    num_rows: int
    pieces: tuple[Piece, ...]
    long_run: int

    @cached_property
    def spans(self) -> torch.Tensor | None:
        """`[num_rows, 2]`, each row's own columns; None where a long run is better done by products of its own."""
        found = torch.zeros(self.num_rows, 2, dtype=torch.int64)
        for piece in self.pieces:
            rows = piece.rows or slice(None)
            if piece.spans is not None:
                found[rows] = piece.spans
            elif piece.columns is not None and len(found[rows]) < self.long_run:
                found[rows] = torch.tensor([piece.columns.start, piece.columns.stop])
            else:
                return None
        return found


def group(
    adapter_ids: Ids, columns: dict[int, slice], num_columns: int, device: torch.device, long_run: int
) -> Grouping:
    """The grouping of `adapter_ids` `[T]` (0 = base; T at least 1), given each adapter's columns in the bank."""
    total = len(adapter_ids)
    borders = np.flatnonzero(np.diff(adapter_ids)) + 1
    pieces: list[Piece] = []
    short: list[tuple[int, int, int]] = []

    def close() -> None:
        """Turn the short runs gathered so far into one piece, unless they are all of the base."""
        runs, start, end = [run for run in short if run[2]], short[0][0] if short else 0, short[-1][1] if short else 0
        if len(runs) == 1:
            pieces.append(Piece(slice(*runs[0][:2]), columns[runs[0][2]]))
        elif runs:
            spans = np.zeros((end - start, 2), dtype=np.int64)
            for first, last, adapter in runs:
                spans[first - start : last - start] = columns[adapter].start, columns[adapter].stop
            rows = None if end - start == total else slice(start, end)
            pieces.append(Piece(rows, None, torch.from_numpy(spans).to(device), num_columns))
        short.clear()

    for start, end in pairwise([0, *borders.tolist(), total]):
        adapter = int(adapter_ids[start])
        if end - start < long_run:
            short.append((start, end, adapter))
            continue
        close()
        if adapter:
            pieces.append(Piece(slice(start, end), columns[adapter]))
    close()
    return Grouping(total, tuple(pieces), long_run)


def apply(
    stack: Stack, x: torch.Tensor, y: torch.Tensor, grouping: Grouping, kernels: Kernels | None = None
) -> None:
    """Add to y `[T, out]`, in place, what each token gets from its adapter: x is `[T, in]`, or the ids `[T]` that an
    embedding looks up."""
    for piece in grouping.pieces:
        mine, out = (x, y) if piece.rows is None else (x[piece.rows], y[piece.rows])
        if kernels is not None and piece.spans is not None and mine.is_floating_point():
            kernels.adapt(mine, stack.a, stack.b, out, piece.spans)
            continue
        a, b = (stack.a, stack.b) if piece.columns is None else (stack.a[:, piece.columns], stack.b[piece.columns])
        hidden = mine @ a if mine.is_floating_point() else a[mine]  # [rows, columns]
        if piece.foreign is not None:
            # Not a product with 0: another adapter's number may be infinite here, and 0 times that is NaN.
            hidden.masked_fill_(piece.foreign, 0)
        out.addmm_(hidden, b)


def apply_joint(
    joint: Joint, x: torch.Tensor, y: torch.Tensor, grouping: Grouping, kernels: Kernels | None = None
) -> None:
    """`apply` for modules that are computed as one: x `[T, in]`, y `[T, out]` of all of them side by side."""
    for piece in grouping.pieces:
        mine, out = (x, y) if piece.rows is None else (x[piece.rows], y[piece.rows])
        if piece.foreign is None:
            columns = piece.columns or slice(None)
            for stack, where in joint.parts:
                out[:, where].addmm_(mine @ stack.a[:, columns], stack.b[columns])
            continue
        if kernels is not None and piece.spans is not None:
            for stack, where in joint.parts:
                kernels.adapt(mine, stack.a, stack.b, out[:, where], piece.spans)
            continue
        hidden = (mine @ joint.a.flatten(1)).view(len(mine), *joint.a.shape[1:])  # [rows, P, C]
        hidden.masked_fill_(piece.foreign[:, None], 0)
        for index, (stack, where) in enumerate(joint.parts):
            out[:, where].addmm_(hidden[:, index], stack.b)


class Router:
    """Applies the pool's adapters to the tokens of one step at a time; owned by the thread that runs the model.

    A Linear module takes no keyword, so the step cannot travel as an argument of the forward: `step` hands it to the
    hooks for the length of a `with` block and takes it back at the end, whatever happens inside.
    """

    def __init__(
        self, model: nn.Module, pool: AdapterPool, long_run: int = LONG_RUN, kernels: Kernels | None = None
    ) -> None:
        self._model = model
        self._pool = pool
        self._long_run = long_run
        self._kernels = kernels
        self._head = output_embedding(model)
        self._handles: list[RemovableHandle] = []
        self._revision = 0
        self._rows: Grouping | None = None
        self._head_rows: Grouping | None = None

    @contextmanager
    def step(self, adapter_ids: Sequence[int] | Ids | torch.Tensor, sample_rows: Any = None) -> Iterator[None]:
        """A block in which the model's forward applies these adapters: `adapter_ids` `[T]`, 0 = base.

        `sample_rows` `[R]` are the rows whose logits are computed, in the order `logits_to_keep` names them; None
        means all. Raises InvalidField for an id that is not loaded and for more adapters than the pool holds.
        """
        ids = np.asarray(adapter_ids, dtype=np.int32)
        used = np.unique(ids)
        if not used.any():
            self.detach()
            yield
            return
        bank = self._pool.reside(used.tolist())
        if self._revision != bank.revision:
            self.detach()
        if not self._handles:
            self._attach(bank)
            self._revision = bank.revision
        device = next(iter(bank.stacks.values())).a.device

        def grouped(ids: Ids) -> Grouping:
            return group(ids, bank.columns, bank.num_columns, device, self._long_run)

        self._rows = self._head_rows = grouped(ids)
        if sample_rows is not None and self._has_adapted_head(bank.stacks):
            self._head_rows = grouped(ids[np.asarray(sample_rows)])
        try:
            yield
        finally:
            self._rows = self._head_rows = None

    def _has_adapted_head(self, stacks: dict[str, Stack]) -> bool:
        return any(self._model.get_submodule(name) is self._head for name in stacks)

    def _attach(self, bank: Bank) -> None:
        joined = {id(stack) for joint in bank.joints.values() for stack, _ in joint.parts}
        for name, stack in bank.stacks.items():
            if id(stack) not in joined:
                self._hook(name, partial(apply, stack, kernels=self._kernels), [(stack.a, stack.b, 0)])
        for name, joint in bank.joints.items():
            columns = [(stack.a, stack.b, where.start) for stack, where in joint.parts]
            self._hook(name, partial(apply_joint, joint, kernels=self._kernels), columns)

    def detach(self) -> None:
        """Take the hooks out of the model; the next step with adapters puts them in again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def rows(self, is_head: bool) -> Grouping | None:
        """The grouping of the rows that enter an adapted module in this step; None outside of one."""
        return self._head_rows if is_head else self._rows

    def _hook(self, name: str, apply_to: Apply, columns: Columns) -> None:
        module = self._model.get_submodule(name)
        hook = AdapterHook(self, module is self._head, isinstance(module, nn.Embedding), apply_to, columns)
        self._handles.append(module.register_forward_hook(hook))


class AdapterHook(Adapting):
    """Adds to what a module gave what its rows get from their adapters."""

    def __init__(self, router: Router, is_head: bool, is_lookup: bool, apply_to: Apply, columns: Columns) -> None:
        super().__init__(columns)
        self._router, self._is_head, self._is_lookup, self._apply_to = router, is_head, is_lookup, apply_to

    @property
    def spans(self) -> torch.Tensor | None:
        grouping = self._router.rows(self._is_head)
        return None if grouping is None else grouping.spans

    def __call__(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        grouping = self._router.rows(self._is_head)
        if grouping is None:
            return
        y = output.view(-1, output.shape[-1])  # [T, out]
        x = inputs[0].reshape(-1) if self._is_lookup else inputs[0].reshape(-1, inputs[0].shape[-1])  # [T] or [T, in]
        if len(x) != grouping.num_rows:
            raise RuntimeError(f"{len(x)} rows entered an adapted module but the step has {grouping.num_rows}")
        self._apply_to(x, y, grouping)


def attach(model: nn.Module, pool: AdapterPool, kernels: Kernels | None = None) -> Router:
    """The router of this model; the model itself is changed only while a step with adapters runs."""
    return Router(model, pool, kernels=kernels)
