"""Bands: cells that lie together, so that a mask of any size travels as a few numbers and never as a matrix."""

from __future__ import annotations

import numpy as np

from kev_engine.doctor.cells import BoolArray, Cells, IntArray

# (the first key moves on by one a row, the end does): a triangle, a rectangle, a window's slant, an upper triangle.
KINDS = ((0, 1), (0, 0), (1, 1), (1, 0))


def bands(cells: Cells) -> IntArray:
    """`[N, 6]`: rows `[row, row_end)` hold keys `[key, key_end)`; both edges are those of the first row.

    Columns row, row_end, key, key_end, slides, grows: with `slides` the first key moves on by one a row, with `grows`
    the end does. Exact: every cell stands in one band.
    """
    rows, firsts, lasts = cells.run_rows, cells.run_firsts, cells.run_lasts
    if not rows.size:
        return np.zeros((0, 6), dtype=np.int64)
    longest = np.zeros(len(rows), dtype=np.int64)
    kind = np.zeros(len(rows), dtype=np.int64)
    for index, (slides, grows) in enumerate(KINDS):
        length = _chain_lengths(rows, firsts - slides * rows, lasts - grows * rows)
        better = length > longest
        longest[better], kind[better] = length[better], index
    found = []
    for index, (slides, grows) in enumerate(KINDS):
        mine = np.flatnonzero(kind == index)
        if not mine.size:
            continue
        order, fresh = _chains(rows[mine], (firsts - slides * rows)[mine], (lasts - grows * rows)[mine])
        heads, tails = order[fresh], order[np.append(np.flatnonzero(fresh)[1:] - 1, len(order) - 1)]
        heads, tails = mine[heads], mine[tails]
        found.append(np.stack([rows[heads], rows[tails] + 1, firsts[heads], lasts[heads],
                               np.full(len(heads), slides), np.full(len(heads), grows)], axis=1))
    table = np.concatenate(found)
    return table[np.lexsort((table[:, 2], table[:, 0]))]


def _chains(rows: IntArray, left: IntArray, right: IntArray) -> tuple[IntArray, BoolArray]:
    """Runs in an order in which those of one band follow each other, and where each band begins in it."""
    order = np.lexsort((rows, right, left))
    joins = (np.diff(left[order]) == 0) & (np.diff(right[order]) == 0) & (np.diff(rows[order]) == 1)
    return order, np.concatenate([[True], ~joins])


def _chain_lengths(rows: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """For each run the number of rows of the band it would stand in."""
    order, fresh = _chains(rows, left, right)
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.append(starts, len(order)))
    lengths = np.empty(len(order), dtype=np.int64)
    lengths[order] = np.repeat(sizes, sizes)
    return lengths


def window(cells: Cells, queries: tuple[int, int], keys: tuple[int, int]) -> Cells:
    """The cells of these half-open stretches of queries and keys, in a set of the same size."""
    low, high = np.searchsorted(cells.starts, [queries[0] * cells.num_keys, queries[1] * cells.num_keys])
    base = (cells.starts[low:high] // max(1, cells.num_keys)) * cells.num_keys
    starts = np.maximum(cells.starts[low:high], base + keys[0])
    ends = np.minimum(cells.ends[low:high], base + keys[1])
    some = starts < ends
    return Cells(cells.num_queries, cells.num_keys, starts[some], ends[some])


def blocks(cells: Cells, step: int) -> Cells:
    """The blocks of `step` × `step` cells that hold at least one, as cells of a coarser set."""
    queries, keys = -(-cells.num_queries // step), -(-cells.num_keys // step)
    cover = np.zeros((queries, keys + 1), dtype=np.int64)
    rows = cells.run_rows // step
    np.add.at(cover, (rows, cells.run_firsts // step), 1)
    np.subtract.at(cover, (rows, (cells.run_lasts - 1) // step + 1), 1)
    return Cells.from_chunks(queries, keys, [np.cumsum(cover[:, :-1], axis=1) > 0])
