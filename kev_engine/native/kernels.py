"""Kernels: what the C files here compute, on torch tensors; compiled once a machine and kept under the cache folder.

They are optional. Without a C compiler everything is computed by torch, and the engine says so (`EngineInfo.kernels`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

SOURCES = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
# -fno-tree-pre: with it GCC keeps two copies of every sum and moves one into the other at each turn.
FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-tree-pre", "-ffp-contract=fast", "-std=gnu11",
    "-shared", "-fPIC", "-lm"
)
COMPILE_SECONDS = 120
CHECK_TOLERANCE = 1e-5
INT8_TOLERANCE = 2e-4
"""Rows of x are rounded to 16 bits."""
GROUP = 32
"""Numbers of a row of int8 weights that share a scale and a base."""
POINTER, INDEX, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float


class NoKernels(Exception):
    """The kernels cannot be used here; the text says why."""


class Kernels:
    """The compiled kernels. Stateless; safe to call from several threads."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.most_rows.restype = INDEX
        self.most_rows = int(library.most_rows())
        """Up to so many rows `product` is faster than the library that torch uses."""
        self._product = library.product_f32
        self._product.argtypes = [POINTER] * 4 + [INDEX] * 3 + [INT]
        self._product.restype = None
        self._product_int8 = library.product_i8
        self._product_int8.argtypes = [POINTER] * 6 + [INDEX] * 3 + [INT]
        self._product_int8.restype = None
        self._attend = library.attend_f32
        self._attend.argtypes = [POINTER] * 6 + [INDEX] * 7 + [FLOAT, INT]
        self._attend.restype = None
        self._prefill = library.prefill_f32
        self._prefill.argtypes = [POINTER] * 4 + [INDEX] * 10 + [FLOAT, INT]
        self._prefill.restype = None
        self._store = library.store_f32
        self._store.argtypes = [POINTER] * 5 + [INDEX] * 9
        self._store.restype = None
        self._adapt = library.adapt_f32
        self._adapt.argtypes = [POINTER] * 5 + [INDEX] * 6 + [INT]
        self._adapt.restype = None
        self._norm = library.norm_f32
        self._norm.argtypes = [POINTER] * 3 + [INDEX] * 2 + [FLOAT, INT]
        self._norm.restype = None
        self._rotate = library.rotate_f32
        self._rotate.argtypes = [POINTER] * 4 + [INDEX] * 4 + [INT]
        self._rotate.restype = None
        self._gate = library.gate_f32
        self._gate.argtypes = [POINTER] * 2 + [INDEX] * 2 + [INT]
        self._gate.restype = None

        self.enter_layer, self.leave_layer, self.decode_layer = (
            library.enter_layer, library.leave_layer, library.decode_layer
        )
        """What `LayerKernel` calls."""
        self.enter_layer.argtypes = [POINTER] * 8 + [INDEX, INT]
        self.leave_layer.argtypes = [POINTER] * 6 + [INDEX, INT]
        self.decode_layer.argtypes = [POINTER] * 12 + [INDEX] * 2 + [FLOAT, INDEX, INT]
        self.enter_layer.restype = self.leave_layer.restype = self.decode_layer.restype = None

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """`x Wᵀ + bias`, `[..., out]`, for fp32 rows; `weight` `[out, in]` fp32, contiguous."""
        x = x.contiguous()
        num_out, num_in = weight.shape
        out = torch.empty((*x.shape[:-1], num_out))
        self._product(
            weight.data_ptr(), x.data_ptr(), out.data_ptr(), _pointer(bias), x.numel() // num_in, num_out, num_in,
            torch.get_num_threads(),
        )
        return out

    def product_int8(
        self, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, base: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`x Wᵀ + bias`, `[..., out]`, for fp32 rows, where W = `weight` `[out, in]` int8 · `scale` + `base`.

        `scale` and `base` `[out, groups]`, one for GROUP numbers of a row; all contiguous. Each row of x is rounded to
        16 bits of its own largest number, and the products of a group are summed as whole numbers.
        """
        x = x.contiguous()
        num_out, num_in = weight.shape
        out = torch.empty((*x.shape[:-1], num_out))
        self._product_int8(
            weight.data_ptr(), x.data_ptr(), out.data_ptr(), scale.data_ptr(), base.data_ptr(), _pointer(bias),
            x.numel() // num_in, num_out, num_in, torch.get_num_threads(),
        )
        return out

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, edges: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        """Attention of one new token a sequence, `[S, Hq, D]`, like `query`; all in fp32.

        `keys` and `values` `[slots, Hkv, D]`, of the same strides. Sequence s reads the slots `slots[edges[s]]` …
        `slots[edges[s + 1] − 1]` (both int64), at least one, all of them and no other.
        """
        query = query.contiguous()
        num_sequences, num_heads, size = query.shape
        kv_heads = keys.shape[1]
        slot_stride, head_stride, _ = keys.stride()
        out = torch.empty_like(query)
        self._attend(
            query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), slots.data_ptr(), edges.data_ptr(),
            num_sequences, kv_heads, num_heads // kv_heads, size, num_heads * size, head_stride, slot_stride, scaling,
            torch.get_num_threads(),
        )
        return out

    def prefill(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None, scaling: float
    ) -> torch.Tensor:
        """Attention of the last Q of the K tokens of one sequence, `[Q, Hq, D]`, like `query`; all in fp32.

        `keys` and `values` `[K, Hkv, D]`, of the same strides. Each query reads the keys up to its own and, under a
        window, only the last so many of them. Raises ValueError where numbers of a head lie apart.
        """
        (num_queries, num_heads, size), (num_keys, kv_heads, _) = query.shape, keys.shape
        if keys.stride() != values.stride() or {query.stride(2), keys.stride(2)} != {1}:
            raise ValueError("keys and values must lie alike, and the numbers of a head side by side")
        out = torch.empty(query.shape)
        self._prefill(
            query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), num_queries, num_keys, kv_heads,
            num_heads // kv_heads, size, query.stride(0), query.stride(1), keys.stride(0), keys.stride(1),
            num_keys if window is None else window, scaling, torch.get_num_threads(),
        )
        return out

    def store(
        self, key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Put `key` and `value` `[T, Hkv, D]` into `keys` and `values` `[slots, Hkv, D]` at `slots` `[T]` (int64).

        All fp32; `keys` and `values` lie alike, and the numbers of a head side by side; raises ValueError otherwise.
        """
        if keys.stride() != values.stride() or {key.stride(2), value.stride(2), keys.stride(2)} != {1}:
            raise ValueError("keys and values must lie alike, and the numbers of a head side by side")
        self._store(
            key.data_ptr(), value.data_ptr(), keys.data_ptr(), values.data_ptr(), slots.data_ptr(), *key.shape,
            *key.stride()[:2], *value.stride()[:2], *keys.stride()[:2],
        )

    def adapt(
        self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, spans: torch.Tensor
    ) -> None:
        """Add `(x a) b` to y `[rows, out]`, in place, over each row's own columns; all fp32.

        x `[rows, in]`, a `[in, C]` and y may be parts of wider rows, whose numbers lie side by side; b `[C, out]` is
        contiguous. Row r uses the columns `spans[r, 0]` … `spans[r, 1] − 1` (int64, both multiples of 8), none where
        they are equal, and never reads another. Raises ValueError for numbers that lie apart.
        """
        if {x.stride(1), a.stride(1), y.stride(1)} != {1} or not b.is_contiguous():
            raise ValueError("numbers of a row must lie side by side")
        (num_rows, num_in), num_out = x.shape, b.shape[1]
        self._adapt(
            x.data_ptr(), a.data_ptr(), b.data_ptr(), y.data_ptr(), spans.data_ptr(), num_rows, num_in, num_out,
            x.stride(0), a.stride(0), y.stride(0), torch.get_num_threads(),
        )

    def norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """`x / √(mean x² + eps) · weight` over the last dimension, all fp32 (Zhang and Sennrich 2019,
        arXiv:1910.07467)."""
        x = x.contiguous()
        out = torch.empty_like(x)
        size = len(weight)
        self._norm(
            x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // size, size, eps, torch.get_num_threads()
        )
        return out

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x `[T, H, D]` with the halves of each head rotated (Su et al. 2021, arXiv:2104.09864); `cos`, `sin` `[T, D]`.

        All fp32, D even; the heads of a row lie side by side, rows may lie apart. Raises ValueError for heads that
        lie apart.
        """
        num_rows, num_heads, size = x.shape
        if x.stride()[1:] != (size, 1):
            raise ValueError("heads of a row must lie side by side")
        cos, sin, out = cos.contiguous(), sin.contiguous(), torch.empty(x.shape)
        self._rotate(
            x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr(), num_rows, num_heads, size, x.stride(0),
            torch.get_num_threads(),
        )
        return out

    def gate(self, both: torch.Tensor) -> torch.Tensor:
        """`silu(g) · u`, `[..., N]`, of `both` `[..., 2 N]`, g first; fp32 (Shazeer 2020, arXiv:2002.05202)."""
        both = both.contiguous()
        size = both.shape[-1] // 2
        out = torch.empty((*both.shape[:-1], size))
        self._gate(both.data_ptr(), out.data_ptr(), both.numel() // (2 * size), size, torch.get_num_threads())
        return out

    def check(self) -> None:
        """Raise NoKernels unless the kernels give what torch gives, for sizes with and without a rest."""
        generator = torch.Generator().manual_seed(0)
        for rows, outs, ins in ((1, 5, 9), (3, 50, 64), (9, 97, 43), (4, 6, 300), (37, 29, 70)):
            x, weight = torch.randn(rows, ins, generator=generator), torch.randn(outs, ins, generator=generator)
            together = self.product(x, weight)
            _require_close("product", together, x @ weight.t())
            _require_own("product", self.product(x[:1], weight), together)
            whole = torch.randint(-128, 128, (outs, ins), dtype=torch.int8, generator=generator)
            scale, base = torch.rand(2, outs, -(-ins // GROUP), generator=generator)
            right = whole * scale.repeat_interleave(GROUP, 1)[:, :ins] + base.repeat_interleave(GROUP, 1)[:, :ins]
            found = self.product_int8(x, whole, scale, base)
            _require_close("product of int8", found, x @ right.t(), INT8_TOLERANCE)
            _require_own("product of int8", self.product_int8(x[:1], whole, scale, base), found)
            both = torch.cat([x, 9 * x.flip(0)], -1)
            _require_close("gate", self.gate(both), silu(x) * 9 * x.flip(0))
            _require_close("norm", self.norm(x, weight[0], 1e-5), rms_norm(x, (ins,), weight[0], 1e-5))
        x, y = torch.randn(3, 21, generator=generator), torch.randn(3, 19, generator=generator)
        a, b = torch.randn(21, 24, generator=generator), torch.randn(24, 19, generator=generator)
        right = torch.stack([y[0] + x[0] @ a[:, 8:] @ b[8:], y[1], y[2] + x[2] @ a[:, :8] @ b[:8]])
        self.adapt(x, a, b, y, torch.tensor([[8, 24], [0, 0], [0, 8]]))
        _require_close("adapt", y, right)
        both, there = torch.randn(3, 4, 20, generator=generator), torch.zeros(2, 2, 8, 20)
        key, value, kept = both[:, :2], both[:, 2:], there.transpose(1, 2)
        self.store(key, value, kept[0], kept[1], torch.tensor([5, 0, 6]))
        _require_close("store", kept[:, [5, 0, 6]], torch.stack([key, value]))
        x, cos, sin = torch.randn(2, 60, generator=generator), *torch.randn(2, 2, 20, generator=generator)
        heads = x.view(2, 3, 20)
        right = heads * cos[:, None] + torch.cat([-heads[..., 10:], heads[..., :10]], -1) * sin[:, None]
        _require_close("rotate", self.rotate(heads[:, :2], cos, sin), right[:, :2])
        query = torch.randn(2, 6, 20, generator=generator)
        keys, values = torch.randn(2, 40, 2, 20, generator=generator)
        slots, edges = torch.randperm(40, generator=generator)[:31], torch.tensor([0, 1, 31])
        found = self.attend(query, keys, values, slots, edges, 0.3)
        for index, (start, end) in enumerate(((0, 1), (1, 31))):
            mine = slots[start:end]
            key, value = (tensor[mine].repeat_interleave(3, 1).transpose(0, 1) for tensor in (keys, values))
            weights = torch.softmax(query[index][:, None] @ key.transpose(1, 2) * 0.3, -1)  # [Hq, 1, K]
            _require_close("attend", found[index], (weights @ value)[:, 0])
        query = torch.randn(19, 4, 22, generator=generator)
        keys, values = torch.randn(2, 90, 2, 22, generator=generator)
        distance = torch.arange(71, 90)[:, None] - torch.arange(90)
        for window in (None, 7):
            found = self.prefill(query, keys, values, window, 0.3)
            mask = (distance >= 0) & (distance < (window or 90))
            right = scaled_dot_product_attention(
                query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), mask, scale=0.3, enable_gqa=True
            )
            _require_close("prefill", found, right.transpose(0, 1))


def load_kernels(home: Path) -> Kernels:
    """The kernels, compiled now if `home` does not hold them yet. Raises NoKernels with the reason."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]"))]
    machine = hashlib.sha256("\n".join([*texts, *FLAGS, platform.machine(), _cpu()]).encode()).hexdigest()
    library = home / "native" / f"kernels-{machine[:16]}.so"
    if not library.exists():
        if compiler is None:
            raise NoKernels(f"no C compiler was found ({', '.join(COMPILERS)})")
        _compile(compiler, library)
    try:
        kernels = Kernels(ctypes.CDLL(str(library)))
    except (OSError, AttributeError) as error:
        raise NoKernels(f"{library} cannot be loaded ({error})") from error
    kernels.check()
    return kernels


def _cpu() -> str:
    """What -march=native depends on: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _compile(compiler: str, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        try:
            done = subprocess.run(
                [compiler, *sources, "-o", str(made), *FLAGS], capture_output=True, text=True,
                timeout=COMPILE_SECONDS, check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoKernels(f"{compiler} failed ({error})") from error
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NoKernels(f"{compiler} failed ({lines[0]})")
        os.replace(made, library)


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _require_close(what: str, found: torch.Tensor, right: torch.Tensor, tolerance: float = CHECK_TOLERANCE) -> None:
    if not bool((found - right).abs().max() <= tolerance * right.abs().max()):
        raise NoKernels(f"the compiled {what} gives other numbers than torch")


def _require_own(what: str, alone: torch.Tensor, together: torch.Tensor) -> None:
    if not torch.equal(alone, together[:1]):
        raise NoKernels(f"the compiled {what} of a row depends on how many there are")
