"""How much memory a model takes: weights, keys and values, masks. Arithmetic only; shape.py reads configurations.

    bytes a token, one layer  =  KV heads × (key size + value size) × bytes of the dtype
    bytes a token             =  the sum over the layers;  2 × layers × KV heads × head_dim × bytes where all are alike
    bytes of one question     =  the sum over the layers of  min(tokens, window) × bytes a token of that layer
    bytes in all              =  weights + questions × bytes of one question

A cache in blocks rounds each question up to a whole block, which is not counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kev_engine.errors import InvalidField

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "float8": 8, "int8": 8, "int4": 4}
"""Bits of one number. Scales of quantised formats are not counted."""
CU_SEQLENS_BYTES = 4
GB, GIB = 10**9, 2**30
MAX_TOKENS = 2**31


@dataclass(frozen=True)
class LayerShape:
    """What attention of one layer stores: `num_kv_heads` keys of `key_size` and values of `value_size` numbers a token.

    `window` None: of the whole story. `reuses`: it reads an earlier layer's keys and stores none.
    """

    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    window: int | None = None
    reuses: bool = False

    @property
    def numbers_per_token(self) -> int:
        return 0 if self.reuses else self.num_kv_heads * (self.key_size + self.value_size)

    @property
    def numbers_without_sharing(self) -> int:
        """The same if each query head had a key and a value of its own."""
        return 0 if self.reuses else self.num_heads * (self.key_size + self.value_size)


@dataclass(frozen=True)
class Note:
    """Something a reader of the figures should know: a code, and the facts of its sentence."""

    code: str
    facts: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class ModelShape:
    """A model as memory sees it. `num_parameters` None: not known; `dtype` is what its configuration publishes."""

    name: str
    layers: tuple[LayerShape, ...]
    num_parameters: int | None = None
    max_context: int | None = None
    dtype: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def is_uniform(self) -> bool:
        return len(set(self.layers)) == 1

    @property
    def has_windows(self) -> bool:
        return any(layer.window is not None for layer in self.layers)


@dataclass(frozen=True)
class Cell:
    """`concurrency` questions of `context` tokens each. `fits` None: the weights are not known."""

    context: int
    concurrency: int
    kv_bytes: int
    total_bytes: int | None
    fits: bool | None


@dataclass(frozen=True)
class Footprint:
    """The memory of one model on one device: `device_bytes`, of which `usable` (0 to 1) may be taken.

    Raises InvalidField for a dtype, a size or a share that cannot be.
    """

    shape: ModelShape
    weight_dtype: str
    kv_dtype: str
    device_bytes: int
    usable: float = 1.0

    def __post_init__(self) -> None:
        for name in ("weight_dtype", "kv_dtype"):
            if getattr(self, name) not in BITS:
                raise InvalidField(name, getattr(self, name), f"it must be one of {', '.join(BITS)}")
        if self.device_bytes < 1:
            raise InvalidField("device_bytes", self.device_bytes, "it must be at least 1")
        if not 0 < self.usable <= 1:
            raise InvalidField("usable", self.usable, "it must be above 0 and at most 1")

    @property
    def usable_bytes(self) -> int:
        return int(self.device_bytes * self.usable)

    @property
    def weight_bytes(self) -> int | None:
        parameters = self.shape.num_parameters
        return None if parameters is None else in_bytes(parameters, self.weight_dtype)

    @cached_property
    def bytes_by_layer(self) -> tuple[int, ...]:
        """Bytes a token of each layer."""
        return tuple(in_bytes(layer.numbers_per_token, self.kv_dtype) for layer in self.shape.layers)

    @cached_property
    def bytes_per_token(self) -> int:
        return in_bytes(sum(layer.numbers_per_token for layer in self.shape.layers), self.kv_dtype)

    @property
    def bytes_without_sharing(self) -> int:
        """Bytes a token if each query head had keys and values of its own; equal where nothing is shared."""
        return in_bytes(sum(layer.numbers_without_sharing for layer in self.shape.layers), self.kv_dtype)

    @property
    def formula(self) -> str:
        """How `bytes_per_token` comes about, in numbers: one term for each kind of layer."""
        terms: dict[str, int] = {}
        for layer in self.shape.layers:
            if not layer.reuses:
                term = _term(layer)
                terms[term] = terms.get(term, 0) + 1
        bits = BITS[self.kv_dtype]
        size = f"{bits // 8}" if bits % 8 == 0 else f"{bits}/8"
        counted = [term.format(count=count) for term, count in terms.items()]
        total = " + ".join(counted)
        if len(counted) > 1:
            total = f"({total})"
        return f"{total} × {size} = {self.bytes_per_token:,}"

    def kv_bytes(self, context: int) -> int:
        """Bytes of one question of `context` tokens, where windowed layers keep no more than their window."""
        return in_bytes(self._numbers(context), self.kv_dtype)

    def kv_bytes_whole(self, context: int) -> int:
        """The same where every layer keeps the whole story, as this engine's cache does."""
        return self.bytes_per_token * _tokens("context", context)

    def cell(self, context: int, concurrency: int) -> Cell:
        """What `concurrency` questions of `context` tokens need. Raises InvalidField for a count below 1."""
        kv = self.kv_bytes(context) * _tokens("concurrency", concurrency)
        weights = self.weight_bytes
        total = None if weights is None else weights + kv
        return Cell(context, concurrency, kv, total, None if total is None else total <= self.usable_bytes)

    def table(self, contexts: Sequence[int], concurrencies: Sequence[int]) -> tuple[tuple[Cell, ...], ...]:
        """One row a context, one cell a concurrency."""
        return tuple(tuple(self.cell(context, count) for count in concurrencies) for context in contexts)

    def largest_batch(self, context: int) -> int | None:
        """The most questions of `context` tokens that fit beside the weights; None where those are not known."""
        if self.weight_bytes is None:
            return None
        each = self.kv_bytes(context)
        left = self.usable_bytes - self.weight_bytes
        if left < 0:
            return 0
        return left // each if each else MAX_TOKENS

    def longest_context(self, concurrency: int) -> int | None:
        """The most tokens that `concurrency` questions may have each; None where the weights are not known.

        At most what the configuration allows. Found by halving, since windowed layers stop growing.
        """
        if self.weight_bytes is None:
            return None
        low, high = 0, self.shape.max_context or MAX_TOKENS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.cell(middle, concurrency).fits else (low, middle - 1)
        return low

    def _numbers(self, context: int) -> int:
        context = _tokens("context", context)
        return sum(
            layer.numbers_per_token * (context if layer.window is None else min(context, layer.window))
            for layer in self.shape.layers
        )


@dataclass(frozen=True)
class MaskBytes:
    """The mask of `num_segments` questions of `context` tokens in one row: as a matrix, and as boundaries."""

    num_segments: int
    context: int

    @property
    def num_tokens(self) -> int:
        return self.num_segments * self.context

    @property
    def dense_bool(self) -> int:
        """A byte a (query, key) pair of the whole row."""
        return self.num_tokens**2

    def dense_additive(self, dtype: str) -> int:
        """A number a pair, as masks that are added to scores have it."""
        return in_bytes(self.num_tokens**2, dtype)

    @property
    def cu_seqlens(self) -> int:
        """One int32 boundary a question, and the leading 0."""
        return (self.num_segments + 1) * CU_SEQLENS_BYTES


def in_bytes(numbers: int, dtype: str) -> int:
    """Whole bytes of so many numbers."""
    return -(-numbers * BITS[dtype] // 8)


def _term(layer: LayerShape) -> str:
    if layer.key_size == layer.value_size:
        return f"2 × {{count}} × {layer.num_kv_heads} × {layer.key_size}"
    return f"{{count}} × {layer.num_kv_heads} × ({layer.key_size} + {layer.value_size})"


def _tokens(name: str, value: int) -> int:
    if not 1 <= value <= MAX_TOKENS:
        raise InvalidField(name, value, f"it must be a whole number from 1 to {MAX_TOKENS}")
    return value
