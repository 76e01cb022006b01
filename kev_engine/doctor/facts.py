"""Facts: what follows from a batch before anything is judged: its size, rows, segments, and the two sets of cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from kev_engine.doctor import consumer as consumers
from kev_engine.doctor.batch import Batch
from kev_engine.doctor.cells import BoolArray, Cells
from kev_engine.doctor.fields import IntArray
from kev_engine.doctor.judge import Judged, judge
from kev_engine.doctor.layouts import (
    Segmentation,
    block_borders,
    from_borders,
    from_intervals,
    intended,
    position_borders,
)
from kev_engine.doctor.masks import MOST_TOKENS, Mask

MOST_CELLS = 2**31 - 1
MOST_RUNS = 20_000_000
MOST_KEPT = 1 << 26


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything derived from one batch; each property is computed once, when a check first asks."""

    batch: Batch

    # -- sizes

    @cached_property
    def num_rows(self) -> int:
        """B, from the first array that has a batch axis."""
        batch = self.batch
        for array in (batch.input_ids, batch.labels, batch.special_tokens_mask):
            if array is not None and array.ndim == 2:
                return int(array.shape[0])
        if batch.input_ids is not None:
            return 1
        mask = batch.attention_mask
        if mask is not None and self.row_mask_shape(mask):
            return mask.shape[0] if len(mask.shape) == 2 else 1
        if mask is not None and len(mask.shape) == 4:
            return mask.shape[0]
        positions = batch.position_ids
        if positions is not None and positions.ndim == 2 and not self.axes_as_rows:
            return int(positions.shape[0])
        return int(positions.shape[1]) if positions is not None and positions.ndim == 3 else 1

    @cached_property
    def axes_as_rows(self) -> bool:
        """Whether `[3, T]` positions stand where one row was expected."""
        positions, batch = self.batch.position_ids, self.batch
        if positions is None or positions.ndim != 2 or positions.shape[0] != 3:
            return False
        if batch.input_ids is not None:
            return batch.input_ids.ndim == 1 or batch.input_ids.shape[0] == 1
        return batch.lengths is not None or batch.segments is not None

    def row_mask_shape(self, mask: Mask) -> bool:
        """Whether a mask is `[T]` or `[B, T]`: one number a key, not one a cell."""
        if len(mask.shape) != 2:
            return len(mask.shape) == 1
        if self.batch.q_len is not None:
            # A transformers forward takes a mask of two axes for one number a key, whatever is cached.
            return self.batch.consumer == "hf" and (
                self.batch.q_len == 1 or mask.shape != (self.batch.q_len, self.batch.kv_len))
        rows, keys = mask.shape
        ids = self.batch.input_ids
        if ids is not None and ids.ndim == 2 and ids.shape[0] > 1:
            return bool(rows == ids.shape[0]) or (rows == 1 and keys > 1)
        if rows == 1:
            return True
        if rows == keys:
            return False
        return self.batch.consumer not in ("sdpa", "mha", "eager", "flex")

    @cached_property
    def given_end(self) -> int | None:
        """Where the intended segments end."""
        batch = self.batch
        if batch.segments is not None:
            return max(end for _, end in batch.segments)
        return sum(batch.lengths) if batch.lengths is not None else None

    @cached_property
    def total(self) -> int | None:
        """T, or None where nothing says it."""
        batch = self.batch
        if batch.input_ids is not None:
            return int(batch.input_ids.shape[-1])
        if batch.total is not None:
            return batch.total
        size = self._total_of_arrays
        return size if self.given_end is None else max(size or 0, self.given_end)

    @cached_property
    def _total_of_arrays(self) -> int | None:
        batch, mask = self.batch, self.batch.attention_mask
        if mask is not None and batch.q_len is None:
            past = (batch.past_length or 0) if self.row_mask_shape(mask) else 0
            if mask.shape[-1] > past:
                return mask.shape[-1] - past
        if mask is None and batch.mask_planes:
            return max(plane.shape[-1] for plane in batch.mask_planes)
        for size in (batch.tokens, batch.token_bytes):
            if size is not None and len(size):
                return len(size)
        for array in (batch.labels, batch.special_tokens_mask):
            if array is not None:
                return int(array.shape[-1])
        cu = batch.cu_seqlens or (batch.cu_seqlens_q if batch.cu_seqlens_q == batch.cu_seqlens_k else None)
        end = cu[-1] if cu is not None and consumers.usable_cu(cu, cu[-1]) else None
        # Two that agree on the end count more than the positions.
        if batch.position_ids is not None and (end is None or end != self.given_end):
            return int(batch.position_ids.shape[-1])
        return end or None

    @property
    def paired(self) -> bool:
        """Whether cu_seqlens of queries and keys describe different tokens."""
        return self.batch.cu_seqlens_q is not None and self.batch.cu_seqlens_q != self.batch.cu_seqlens_k

    @property
    def rectangular(self) -> bool:
        """Whether queries and keys are different tokens: a cache, or cross attention."""
        return self.paired or (self.batch.q_len is not None and self.given_end is None)

    @cached_property
    def shape(self) -> tuple[int, int] | None:
        """(queries, keys) of the cells, or None where they are unknown."""
        batch = self.batch
        if self.paired and batch.cu_seqlens_q is not None and batch.cu_seqlens_k is not None:
            queries, keys = batch.cu_seqlens_q[-1], batch.cu_seqlens_k[-1]
            return (queries, keys) if queries > 0 and keys > 0 else None
        if batch.q_len is not None and batch.kv_len is not None and self.given_end is None:
            return batch.q_len, batch.kv_len
        if self.total is None or (batch.past_length and self.given_end is None):
            return None
        return self.total, self.total

    # -- masks by kind

    @cached_property
    def row_mask(self) -> Mask | None:
        """The mask, where it is `[T]` or `[B, T]`."""
        mask = self.batch.attention_mask
        return mask if mask is not None and self.row_mask_shape(mask) else None

    @cached_property
    def dense_mask(self) -> Mask | None:
        """The mask, where it has one value a cell."""
        mask = self.batch.attention_mask
        return mask if mask is not None and not self.row_mask_shape(mask) else None

    @cached_property
    def numbers_segments(self) -> bool:
        """Whether a row mask holds segment numbers instead of 0 and 1."""
        mask = self.row_mask
        if mask is None:
            return False
        if self.batch.mask_meaning == "segment_ids":
            return True
        values = mask.distinct()
        return bool(len(values) and np.isfinite(values).all() and values[0] >= 0 and values[-1] > 1
                    and np.equal(values, np.round(values)).all()) and self.batch.mask_meaning in (None, "keep")

    @cached_property
    def keep(self) -> BoolArray | None:
        """`[B, T]`: the tokens a row mask keeps, or None where there is no such mask."""
        mask = self.row_mask
        if mask is None or mask.num_cells > MOST_KEPT:
            return None
        lines = np.stack([mask.line(index) for index in range(mask.shape[0] if len(mask.shape) == 2 else 1)])
        meaning = self.batch.mask_meaning
        if meaning == "additive" or (meaning is None and (lines < 0).any()):
            return consumers.decode(lines, "additive")
        if meaning == "block" or (meaning is None and self.batch.consumer == "mha"):
            return consumers.decode(lines, "block")
        kept: BoolArray = (lines != 0) & ~np.isnan(lines)
        return kept

    @cached_property
    def pads_from_ids(self) -> BoolArray | None:
        """`[B, T]`: the tokens kept once the run of pad ids on the padding side is taken away; None without ids."""
        ids, pad = self.ids, self.batch.pad_token_id
        if ids is None or pad is None:
            return None
        is_pad = ids == pad
        side = self.batch.padding_side or ("left" if is_pad[:, 0].any() or pad == self.batch.eos_token_id else "right")
        if side == "left":
            return ~np.logical_and.accumulate(is_pad, axis=1)
        return ~np.logical_and.accumulate(is_pad[:, ::-1], axis=1)[:, ::-1]

    @cached_property
    def real(self) -> BoolArray | None:
        """`[B, T]`: the tokens that are no padding, by a row mask or else by the pad ids; None if unknown."""
        if self.row_mask is not None or self.batch.pad_token_id == self.batch.bos_token_id:
            return self.keep
        pads = self.pads_from_ids
        return None if pads is None or pads.all() else pads

    def real_of(self, row: int) -> BoolArray | None:
        return None if self.real is None else self.real[min(row, len(self.real) - 1)]

    @cached_property
    def ids(self) -> IntArray | None:
        """`[B, T]` token ids."""
        return None if self.batch.input_ids is None else np.atleast_2d(self.batch.input_ids)

    # -- positions

    @cached_property
    def positions(self) -> IntArray | None:
        """`[B, T]` positions that have the right length; of three equal axes one; None where they cannot be judged."""
        given = self.batch.position_ids
        if given is None or self.axes_as_rows or given.shape[-1] != self.wanted_positions:
            return None
        if given.ndim == 3:
            return given[0] if (given == given[:1]).all() and given.shape[0] == 3 else None
        return np.atleast_2d(given)

    @cached_property
    def wanted_positions(self) -> int | None:
        """How many positions a row needs."""
        if self.batch.q_len is not None and self.given_end is None:
            return self.batch.q_len
        return self.total

    def positions_of(self, row: int) -> IntArray | None:
        positions = self.positions
        return None if positions is None else positions[min(row, len(positions) - 1)]

    # -- segments

    @cached_property
    def given(self) -> Segmentation | None:
        """The segments the person gave."""
        if self.given_end is None or self.total is None or self.total > MOST_TOKENS:
            return None
        return intended(self.batch, self.total) if self.num_rows == 1 or self.given_end == self.total else None

    @cached_property
    def cu(self) -> tuple[int, ...] | None:
        """cu_seqlens of self-attention, with the missing 0 put in front; None where no kernel could walk them."""
        batch = self.batch
        cu = batch.cu_seqlens
        if cu is None and batch.cu_seqlens_q is not None and batch.cu_seqlens_q == batch.cu_seqlens_k:
            cu = batch.cu_seqlens_q
        if cu is None:
            return None
        cu = cu if cu[0] == 0 else (0, *cu)
        return cu if self.total is None or consumers.usable_cu(cu, self.total) else None

    @cached_property
    def segments(self) -> Segmentation | None:
        """The best known segments: those given, else those of the first source that describes more than one."""
        return self.given or self.found_segments

    def segments_of(self, row: int, cells: Cells) -> Segmentation:
        """The best known segments of one row, of which the consumer will allow `cells`; else the row as one."""
        if self.segments is not None:
            return self.segments
        positions = self.positions_of(row)
        if self.num_rows > 1 and self.dense_mask is not None and (blocks := self.blocks_of(cells)) is not None:
            return blocks
        if self.num_rows > 1 and positions is not None and self.restarts_in(row):
            return from_borders(position_borders(positions), len(positions), "position_ids")
        return from_borders([0, cells.num_keys], cells.num_keys, "total")

    @cached_property
    def found_segments(self) -> Segmentation | None:
        """Segments as the arrays describe them, where the person gave none."""
        total = self.total
        if total is None or total > MOST_TOKENS or self.given is not None:
            return None
        if self.cu is not None and consumers.usable_cu(self.cu, total):
            return from_borders(self.cu, total, "cu_seqlens")
        if self.numbers_segments and self.row_mask is not None and self.num_rows == 1 and self.keep is not None:
            line = self.row_mask.line(0)
            if len(line) == total:
                cuts = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), total]
                # The number 0 stands for padding.
                numbered = [(start, end) for start, end in pairwise(cuts) if line[start] != 0]
                return from_intervals(numbered, None, total, "attention_mask")
        if self.restarts and self.positions is not None:
            return from_borders(position_borders(self.positions[0]), total, "position_ids")
        if self.zero_tail is not None:
            return from_intervals([(0, self.zero_tail)], None, total, "position_ids")
        return None if self.dense_alone is None else self.blocks_of(self.dense_alone)

    def blocks_of(self, seen: Cells) -> Segmentation | None:
        """The segments that a mask of clean causal blocks, or its opposite, describes; None for one segment."""
        if not self.batch.want_causal or self.batch.forbid is not None or self.batch.window is not None:
            return None
        borders = block_borders(seen)
        if borders is None and len(seen.starts) <= 2 * seen.num_queries:
            borders = block_borders(seen.complement())
        return None if borders is None or len(borders) <= 2 else from_borders(borders, seen.num_keys, "attention_mask")

    @property
    def restarts(self) -> bool:
        """Whether the positions of a single row clearly describe several segments."""
        return self.num_rows == 1 and self.restarts_in(0)

    def restarts_in(self, row: int) -> bool:
        """Whether the positions of a row clearly describe several segments: each starts where the first does."""
        positions, keep = self.positions_of(row), self.keep_of(row) if self.num_rows == 1 else self.real_of(row)
        if positions is None or (keep is not None and not keep.all()):
            return False
        borders = position_borders(positions)[1:-1]
        tail = int(np.flatnonzero(positions)[-1]) + 1 if positions.any() else 0
        starts = [border for border in borders if border < tail or tail == 0]
        return bool(starts) and all(positions[border] == positions[0] for border in starts) and tail > 0

    @cached_property
    def zero_tail(self) -> int | None:
        """Where a tail of zero positions starts that nothing else describes; it looks like padding."""
        if self.positions is None or self.num_rows != 1 or self.batch.attention_mask is not None:
            return None
        positions = self.positions[0]
        tail = int(np.flatnonzero(positions)[-1]) + 1 if positions.any() else 0
        return tail if 0 < tail <= len(positions) - 3 else None

    @cached_property
    def dense_alone(self) -> Cells | None:
        """The cells of a dense mask whose planes are all equal, as its consumer reads it."""
        mask = self.dense_mask
        if mask is None or self.shape is None or not self.fits(mask) or mask.num_cells > MOST_CELLS:
            return None
        return self.mask_cells(mask, 0) if len(mask.different(range(mask.planes()))) == 1 else None

    def fits(self, mask: Mask) -> bool:
        """Whether the last two axes are (queries, keys)."""
        return len(mask.shape) >= 2 and self.shape is not None and mask.shape[-2:] == self.shape

    @cached_property
    def meaning(self) -> str:
        """How the consumer reads the dense mask."""
        return consumers.reads_dense_as(self.batch, self.dense_mask) if self.dense_mask is not None else "keep"

    def mask_cells(self, mask: Mask, plane: int) -> Cells:
        return mask.cells(plane, lambda values: consumers.decode(values, self.meaning))

    # -- the two sets of cells

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """One entry for each row whose cells are known."""
        if self.shape is None or max(self.shape) > MOST_TOKENS:
            return ()
        mask = self.batch.attention_mask
        if (mask is not None and mask.num_cells > MOST_CELLS) or self.too_ragged:
            return ()
        return tuple(judge(self))

    @cached_property
    def too_ragged(self) -> bool:
        """Whether a row mask has so many holes that its cells fall into more runs than can be held."""
        if self.keep is None or self.shape is None:
            return False
        holes = max(int(np.count_nonzero(line[1:] != line[:-1])) for line in self.keep)
        return holes * self.shape[0] > MOST_RUNS

    def keep_of(self, row: int) -> BoolArray | None:
        keep = self.keep
        return None if keep is None else keep[min(row, len(keep) - 1)]

    def cached_pads(self, row: int, cells: Cells) -> BoolArray | None:
        """`[K]`: the keys kept, where no query may read the first cached ones and positions do not count them."""
        positions, past = self.positions_of(row), self.batch.past_length or 0
        hidden = int(np.argmax(cells.columns))
        if positions is None or not 0 < hidden <= past or positions[0] != past - hidden + self.batch.position_start:
            return None
        kept: BoolArray = np.arange(cells.num_keys) >= hidden
        return kept

    @cached_property
    def window(self) -> int | None:
        """The window to hold a mask to; None where the layers do not use one, or where the consumer adds its own."""
        if self.batch.layer_types and not any(
                "sliding" in kind or "local" in kind or "window" in kind for kind in self.batch.layer_types):
            return None
        if self.batch.consumer in ("hf", "flash_varlen") and self.dense_mask is None:
            return None
        return self.batch.window

    @property
    def segments_kept(self) -> int:
        """How many segments that are not padding stand in the row."""
        if self.segments is None:
            return 1
        pads = self.batch.pad_segments if self.given is not None else ()
        return sum(1 for name in self.segments.intervals if name not in pads)
