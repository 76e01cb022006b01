"""Cells: a set of (query, key) pairs as sorted runs on one line, so that 32k tokens need no T × T array.

Cell (query, key) lies at place `query × num_keys + key` of the line; a run never crosses the end of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
# More pairs of segments than this are not listed one by one.
MOST_PAIRS = 100_000
# Above this many runs a matrix is faster to cut than runs are to sort, as long as it fits.
MANY_RUNS = 1_000_000
MOST_DENSE = 1 << 29
CHUNK_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class Cells:
    """Half-open runs `[starts[i], ends[i])` on the line, ascending and disjoint."""

    num_queries: int
    num_keys: int
    starts: IntArray
    ends: IntArray

    @classmethod
    def nothing(cls, num_queries: int, num_keys: int) -> Cells:
        empty = np.zeros(0, dtype=np.int64)
        return cls(num_queries, num_keys, empty, empty)

    @classmethod
    def everything(cls, num_queries: int, num_keys: int) -> Cells:
        starts = np.arange(num_queries, dtype=np.int64) * num_keys
        return cls(num_queries, num_keys, starts, starts + num_keys)

    @classmethod
    def from_runs(cls, num_queries: int, num_keys: int, rows: IntArray, firsts: IntArray, lasts: IntArray) -> Cells:
        """Runs of keys `[first, last)` by row, in any order; they may touch and overlap. Empty runs are dropped."""
        firsts, lasts = np.clip(firsts, 0, num_keys), np.clip(lasts, 0, num_keys)
        some = (firsts < lasts) & (rows >= 0) & (rows < num_queries)
        starts, ends = (rows * num_keys + firsts)[some], (rows * num_keys + lasts)[some]
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        if starts.size:
            # A run starts where no earlier one reaches, or where a row starts.
            reach = np.maximum.accumulate(ends)
            fresh = np.concatenate([[True], (starts[1:] > reach[:-1]) | (starts[1:] % num_keys == 0)])
            starts = starts[fresh]
            ends = reach[np.concatenate([np.flatnonzero(fresh)[1:] - 1, [len(fresh) - 1]])]
        return cls(num_queries, num_keys, starts, ends)

    @classmethod
    def from_chunks(cls, num_queries: int, num_keys: int, chunks: Iterable[BoolArray]) -> Cells:
        """From boolean rows `[n, K]` that arrive in order, a block at a time."""
        starts: list[IntArray] = []
        ends: list[IntArray] = []
        place = 0
        for chunk in chunks:
            flat = chunk.reshape(-1)
            if flat.any():
                beside = np.zeros_like(flat)
                beside[1:] = flat[:-1]
                beside[::num_keys] = False
                starts.append(np.flatnonzero(flat > beside) + place)
                beside[:-1] = flat[1:]
                beside[num_keys - 1 :: num_keys] = False
                ends.append(np.flatnonzero(flat > beside) + (place + 1))
            place += chunk.shape[0] * num_keys
        if not starts:
            return cls.nothing(num_queries, num_keys)
        return cls(num_queries, num_keys, np.concatenate(starts), np.concatenate(ends))

    @property
    def count(self) -> int:
        return int((self.ends - self.starts).sum())

    @cached_property
    def run_rows(self) -> IntArray:
        """The query of each run."""
        return self.starts // max(1, self.num_keys)

    @property
    def run_firsts(self) -> IntArray:
        return self.starts - self.run_rows * self.num_keys

    @property
    def run_lasts(self) -> IntArray:
        return self.ends - self.run_rows * self.num_keys

    @cached_property
    def rows(self) -> list[int]:
        """The queries that have at least one cell, ascending."""
        some = np.zeros(self.num_queries, dtype=np.bool_)
        some[self.run_rows] = True
        return [int(row) for row in np.flatnonzero(some)]

    @property
    def columns(self) -> BoolArray:
        """`[K]`: the keys that at least one query reads."""
        change = np.zeros(self.num_keys + 1, dtype=np.int64)
        np.add.at(change, self.run_firsts, 1)
        np.subtract.at(change, self.run_lasts, 1)
        return np.cumsum(change[:-1]) > 0

    def row_runs(self, query: int) -> list[tuple[int, int]]:
        """The half-open runs of keys of one query."""
        low, high = np.searchsorted(self.starts, [query * self.num_keys, (query + 1) * self.num_keys])
        base = query * self.num_keys
        return [(int(start - base), int(end - base))
                for start, end in zip(self.starts[low:high], self.ends[low:high], strict=True)]

    def first(self) -> tuple[int, int] | None:
        """The first cell as (query, key)."""
        if not self.starts.size:
            return None
        query, key = divmod(int(self.starts[0]), self.num_keys)
        return query, key

    def complement(self) -> Cells:
        return overlay(self.num_queries, self.num_keys, {"all": Cells.everything(self.num_queries, self.num_keys),
                                                         "self": self}).select("all", without="self")

    def same(self, other: Cells) -> bool:
        """Whether both hold the same cells."""
        return overlay(self.num_queries, self.num_keys, {"a": self, "b": other}).equal("a", "b")

    def dense(self) -> BoolArray:
        """`[Q, K]` bool. For drawing and for tests."""
        line = np.zeros(self.num_queries * self.num_keys + 1, dtype=np.int8)
        line[self.starts] += 1
        line[self.ends] -= 1
        filled: BoolArray = np.cumsum(line[:-1], dtype=np.int8).astype(np.bool_)
        return filled.reshape(self.num_queries, self.num_keys)

    def pairs(self, owner_of_query: IntArray, owner_of_key: IntArray) -> tuple[list[tuple[int, int, int]], bool]:
        """Cells counted by (owner of the query, owner of the key), and whether the list is complete."""
        if not self.starts.size:
            return [], True
        cuts = np.flatnonzero(np.diff(owner_of_key)) + 1
        borders = np.concatenate([[0], cuts, [len(owner_of_key)]])
        names = owner_of_key[borders[:-1]]
        sizes = np.diff(borders)
        place = np.repeat(np.arange(len(sizes)), sizes)
        rows, firsts, lasts = self.run_rows, self.run_firsts, self.run_lasts
        readers = owner_of_query[rows]
        order = np.argsort(readers, kind="stable")
        rows, firsts, lasts, readers = rows[order], firsts[order], lasts[order], readers[order]
        found: dict[tuple[int, int], int] = {}
        for group in np.split(np.arange(len(readers)), np.flatnonzero(np.diff(readers)) + 1):
            low, high = place[firsts[group]], place[lasts[group] - 1]
            whole = np.zeros(len(sizes) + 1, dtype=np.int64)
            np.add.at(whole, low, 1)
            np.subtract.at(whole, high + 1, 1)
            counts = np.cumsum(whole[:-1]) * sizes
            np.subtract.at(counts, low, firsts[group] - borders[low])
            np.subtract.at(counts, high, borders[high + 1] - lasts[group])
            reader = int(readers[group[0]])
            for piece in np.flatnonzero(counts):
                pair = (reader, int(names[piece]))
                found[pair] = found.get(pair, 0) + int(counts[piece])
            if len(found) > MOST_PAIRS:
                return [(a, b, n) for (a, b), n in sorted(found.items())[:MOST_PAIRS]], False
        return [(a, b, n) for (a, b), n in sorted(found.items())], True


@dataclass(frozen=True, eq=False)
class Overlay:
    """Several sets cut at all their borders: between two cuts each set is either full or empty.

    `code[i]` says of the piece `[starts[i], ends[i])` which sets it lies in, the first of `names` in the lowest bit.
    """

    num_queries: int
    num_keys: int
    names: tuple[str, ...]
    starts: IntArray
    ends: IntArray
    code: npt.NDArray[np.uint8]

    def select(self, *wanted: str, without: str | tuple[str, ...] = (), rows: BoolArray | None = None) -> Cells:
        """The cells that lie in all `wanted` sets and in none of `without`, of the queries marked in `rows`."""
        keep = _table(self.names, wanted, without)[self.code]
        if rows is not None:
            keep &= self._of_rows(rows)
        starts, ends = self.starts[keep], self.ends[keep]
        if starts.size:
            joins = (starts[1:] == ends[:-1]) & (starts[1:] % self.num_keys != 0)
            starts = starts[np.concatenate([[True], ~joins])]
            ends = ends[np.concatenate([~joins, [True]])]
        return Cells(self.num_queries, self.num_keys, starts, ends)

    def equal(self, one: str, other: str, rows: BoolArray | None = None, within: str | None = None) -> bool:
        """Whether two sets agree: in the queries marked in `rows`, on the cells of the set `within`, if given."""
        differ = _differ(self.names, one, other, within)[self.code]
        return not bool((differ if rows is None else differ & self._of_rows(rows)).any())

    def opposite(self, one: str, other: str, rows: BoolArray) -> bool:
        """Whether of each cell of these queries exactly one of the sets has it; False where there is none."""
        marked = self._of_rows(rows)
        return bool(marked.any()) and bool(_differ(self.names, one, other, None)[self.code][marked].all())

    def _of_rows(self, rows: BoolArray) -> BoolArray:
        marked: BoolArray = rows[self.starts // max(1, self.num_keys)]
        return marked


@dataclass(frozen=True, eq=False)
class Grid:
    """What an Overlay says, cell by cell: for sets that fall into more runs than are quick to sort.

    `code[q, k]` says which sets the cell lies in, the first of `names` in the lowest bit.
    """

    names: tuple[str, ...]
    code: npt.NDArray[np.uint8]

    @property
    def num_queries(self) -> int:
        return int(self.code.shape[0])

    @property
    def num_keys(self) -> int:
        return int(self.code.shape[1])

    def select(self, *wanted: str, without: str | tuple[str, ...] = (), rows: BoolArray | None = None) -> Cells:
        """As in Overlay."""
        chunks = self._look_up(_table(self.names, wanted, without), rows)
        return Cells.from_chunks(self.num_queries, self.num_keys, chunks)

    def equal(self, one: str, other: str, rows: BoolArray | None = None, within: str | None = None) -> bool:
        """As in Overlay."""
        return not any(chunk.any() for chunk in self._look_up(_differ(self.names, one, other, within), rows))

    def opposite(self, one: str, other: str, rows: BoolArray) -> bool:
        """As in Overlay."""
        return bool(rows.any()) and not any(
            chunk.any() for chunk in self._look_up(~_differ(self.names, one, other, None), rows))

    def _look_up(self, table: BoolArray, rows: BoolArray | None) -> Iterator[BoolArray]:
        """A block of rows at a time, the table's answer for each cell; False in the queries `rows` leaves out."""
        step = max(1, CHUNK_CELLS // max(1, self.num_keys))
        for start in range(0, self.num_queries, step):
            chunk: BoolArray = table[self.code[start : start + step]]
            yield chunk if rows is None else chunk & rows[start : start + step, None]


def _table(names: tuple[str, ...], wanted: tuple[str, ...], without: str | tuple[str, ...]) -> BoolArray:
    """Which codes lie in all `wanted` sets and in none of `without`."""
    codes = np.arange(1 << len(names), dtype=np.uint8)
    keep = np.ones(len(codes), dtype=np.bool_)
    for name in wanted:
        keep &= codes >> names.index(name) & 1 == 1
    for name in (without,) if isinstance(without, str) else without:
        keep &= codes >> names.index(name) & 1 == 0
    return keep


def _differ(names: tuple[str, ...], one: str, other: str, within: str | None) -> BoolArray:
    """Which codes lie in exactly one of two sets, and in `within` if given."""
    marks: BoolArray = _table(names, (one,), other) | _table(names, (other,), one)
    return marks if within is None else marks & _table(names, (within,), ())


def overlay(num_queries: int, num_keys: int, sets: Mapping[str, Cells]) -> Overlay | Grid:
    """At most eight sets, cut at all their borders. One sort of all borders; memory follows the number of runs."""
    names = tuple(sets)
    if sum(len(cells.starts) for cells in sets.values()) > MANY_RUNS and num_queries * num_keys <= MOST_DENSE:
        return Grid(names, _codes(num_queries, num_keys, sets))
    row_starts = np.arange(num_queries + 1, dtype=np.int64) * num_keys
    borders = [part for cells in sets.values() for part in (cells.starts, cells.ends)]
    # Each part is sorted already, which a merging sort turns to account; np.unique would hash every border.
    cuts = np.sort(np.concatenate([row_starts, *borders]), kind="stable")
    cuts = cuts[np.concatenate([[True], cuts[1:] != cuts[:-1]])]
    code = np.zeros(len(cuts) - 1, dtype=np.uint8)
    for bit, cells in enumerate(sets.values()):
        before = np.zeros(len(cuts), dtype=np.int8)
        before[np.searchsorted(cuts, cells.starts)] += 1
        before[np.searchsorted(cuts, cells.ends)] -= 1
        code |= np.cumsum(before[:-1], dtype=np.int8).view(np.uint8) << bit
    return Overlay(num_queries, num_keys, names, cuts[:-1], cuts[1:], code)


def _codes(num_queries: int, num_keys: int, sets: Mapping[str, Cells]) -> npt.NDArray[np.uint8]:
    """`[Q, K]`: which sets each cell lies in."""
    code = np.zeros(num_queries * num_keys, dtype=np.uint8)
    for bit, cells in enumerate(sets.values()):
        mark = np.uint8(1 << bit)
        if len(cells.starts) > MANY_RUNS // 8:
            code |= cells.dense().reshape(-1).view(np.uint8) * mark
            continue
        for start, end in zip(cells.starts.tolist(), cells.ends.tolist(), strict=True):
            code[start:end] |= mark
    return code.reshape(num_queries, num_keys)
