"""LayerKernel: what stands before and behind the attention of a decoder layer, each as one call, and all of it where
every row is the only new token of its sequence (layer.c)."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kev_engine.native.groups import Groups
from kev_engine.native.kernels import INDEX, POINTER, Kernels

Columns = Sequence[tuple[torch.Tensor, torch.Tensor, int]]
"""Adapters' matrices a `[in, C]` and b `[C, out]`, and the first column that they add to."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A product's `weight` `[out, in]`, with `groups` in int8, and its bias."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    groups: Groups | None


@dataclass(frozen=True, eq=False)
class Norm:
    """An RMSNorm's weight, and what its mean of squares is raised by."""

    weight: torch.Tensor
    eps: float


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """A layer's weights: `products` are those of query, key and value together, of the attention's output, of gate and
    up together, and down; `norms` those before attention and feed-forward, and where heads have some, a query head's
    and a key head's."""

    products: tuple[Weights, ...]
    norms: tuple[Norm, ...]
    head_dim: int


class Adapting(ABC):
    """The forward hook of a product that adapters add to: what they are, and which rows of this step use which."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.parts = (_Adapted * len(columns))(*(
            _Adapted(a.data_ptr(), b.data_ptr(), a.stride(0), first, b.shape[1]) for a, b, first in columns
        ))

    @property
    @abstractmethod
    def spans(self) -> torch.Tensor | None:
        """`[rows, 2]` as `Kernels.adapt` takes them, or None in a step whose rows are better done otherwise."""


@dataclass(frozen=True, eq=False)
class LayerAdapters:
    """The adapters of a layer's four products in one step, as layer.c takes them; the hooks own what it points to."""

    hooks: tuple[Adapting | None, ...] = ()
    parts: ctypes.Array[_Adapters] | None = None
    spans: torch.Tensor | None = None

    def of(self, rows: torch.Tensor) -> LayerAdapters:
        """Those of some of the rows, `[R]`."""
        return self if self.spans is None else LayerAdapters(self.hooks, self.parts, self.spans[rows])


NO_ADAPTERS = LayerAdapters()
NORMS = 4
"""Of a layer whose heads have norms of their own."""


@dataclass(frozen=True, eq=False)
class LoneRows:
    """The first `count` rows of a step, each the only new token of its sequence: row s reads the slots
    `slots[edges[s]]` … `slots[edges[s + 1] − 1]`."""

    count: int
    slots: torch.Tensor
    edges: torch.Tensor


class LayerKernel:
    """One layer's calls. The tensors it was made of must stay where they are."""

    def __init__(self, kernels: Kernels, weights: LayerWeights) -> None:
        self.weights = weights
        self._kernels = kernels
        (width, size), (_, num_mixed) = (product.weight.shape for product in weights.products[:2])
        self.num_query = num_mixed // weights.head_dim
        self.num_kv = (width // weights.head_dim - self.num_query) // 2
        norms = weights.norms if len(weights.norms) == NORMS else (*weights.norms, None, None)
        self._layer = _Layer(
            *map(_matrix, weights.products), *(_pointer(norm.weight if norm else None) for norm in norms), size,
            self.num_query, self.num_kv, weights.head_dim, *(norm.eps if norm else 0.0 for norm in norms),
        )

    def enter(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, added: LayerAdapters = NO_ADAPTERS
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The heads of x, `[T, Hq + 2 Hkv, D]`, and those of queries and keys rotated, `[T, Hq + Hkv, D]`.

        x `[T, hidden]`, `cos` and `sin` `[T, D]`, all contiguous.
        """
        head_dim = self.weights.head_dim
        heads = torch.empty(len(x), self.num_query + 2 * self.num_kv, head_dim)
        rotated = torch.empty(len(x), self.num_query + self.num_kv, head_dim)
        self._kernels.enter_layer(
            ctypes.byref(self._layer), added.parts, _pointer(added.spans), x.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            heads.data_ptr(), rotated.data_ptr(), len(x), torch.get_num_threads(),
        )
        return heads, rotated

    def leave(self, x: torch.Tensor, mixed: torch.Tensor, added: LayerAdapters = NO_ADAPTERS) -> torch.Tensor:
        """What the layer gives, `[T, hidden]`, for its input x and what its attention gave, `[T, Hq · D]`."""
        out = torch.empty_like(x)
        self._kernels.leave_layer(
            ctypes.byref(self._layer), added.parts, _pointer(added.spans), x.data_ptr(), mixed.data_ptr(),
            out.data_ptr(), len(x), torch.get_num_threads(),
        )
        return out

    def decode(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
        into: torch.Tensor, rows: LoneRows, scaling: float, added: LayerAdapters = NO_ADAPTERS,
    ) -> torch.Tensor:
        """What the layer gives, `[T, hidden]`, where all rows are lone tokens: their keys and values are kept at the
        slots `into` `[T]` (int64), and they attend as `Kernels.attend` does. `keys` and `values` as there."""
        out = torch.empty_like(x)
        slot_stride, head_stride, _ = keys.stride()
        self._kernels.decode_layer(
            ctypes.byref(self._layer), added.parts, _pointer(added.spans), x.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            out.data_ptr(), keys.data_ptr(), values.data_ptr(), into.data_ptr(), rows.slots.data_ptr(),
            rows.edges.data_ptr(), head_stride, slot_stride, scaling, len(x), torch.get_num_threads(),
        )
        return out


class _Matrix(ctypes.Structure):
    _fields_ = (*((name, POINTER) for name in ("w", "scale", "base", "bias")), ("n", INDEX), ("k", INDEX))


class _Adapted(ctypes.Structure):
    _fields_ = (("a", POINTER), ("b", POINTER), ("a_stride", INDEX), ("first", INDEX), ("n", INDEX))


class _Adapters(ctypes.Structure):
    _fields_ = (("parts", ctypes.POINTER(_Adapted)), ("count", INDEX))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Matrix) for name in ("qkv", "out", "gate_up", "down")),
        *((name, POINTER) for name in ("norm_in", "norm_out", "q_norm", "k_norm")),
        *((name, INDEX) for name in ("size", "query_heads", "kv_heads", "head")),
        *((name, ctypes.c_float) for name in ("eps_in", "eps_out", "eps_q", "eps_k")),
    )


def _matrix(weights: Weights) -> _Matrix:
    scale, base = (weights.groups.scale, weights.groups.base) if weights.groups else (None, None)
    tensors = (weights.weight, scale, base, weights.bias)
    return _Matrix(*map(_pointer, tensors), *weights.weight.shape)


def layer_adapters(hooks: Sequence[Adapting | None]) -> LayerAdapters:
    """The adapters of four products, each by its hook or None, all of one step."""
    spans = next((hook.spans for hook in hooks if hook), None)
    if spans is None:
        return NO_ADAPTERS
    parts = [_Adapters(hook.parts, len(hook.parts)) if hook else _Adapters() for hook in hooks]
    return LayerAdapters(tuple(hooks), (_Adapters * len(parts))(*parts), spans)


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
