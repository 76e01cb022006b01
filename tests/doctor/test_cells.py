"""Sets of cells as runs, against the same sets as matrices."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kev_engine.doctor import cells as cells_module
from kev_engine.doctor.cells import Cells, overlay

matrices = hnp.arrays(np.bool_, st.tuples(st.integers(1, 7), st.integers(1, 7)))


def of(matrix: np.ndarray, rows: int = 2) -> Cells:
    chunks = [matrix[start : start + rows] for start in range(0, len(matrix), rows)]
    return Cells.from_chunks(*matrix.shape, chunks)


@given(matrices, st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_a_set_is_its_matrix(matrix, rows):
    found = of(matrix, rows)
    assert np.array_equal(found.dense(), matrix)
    assert found.count == matrix.sum()
    assert found.rows == np.flatnonzero(matrix.any(axis=1)).tolist()
    assert np.array_equal(found.complement().dense(), ~matrix)
    for query in range(len(matrix)):
        drawn = np.zeros(matrix.shape[1], dtype=bool)
        for start, end in found.row_runs(query):
            drawn[start:end] = True
        assert np.array_equal(drawn, matrix[query])


@pytest.mark.parametrize("many", [1_000_000, 0], ids=["runs", "matrix"])
def test_overlays_are_set_algebra(many, monkeypatch):
    monkeypatch.setattr(cells_module, "MANY_RUNS", many)

    @given(st.data(), st.integers(1, 6), st.integers(1, 6))
    @settings(max_examples=60, deadline=None)
    def holds(data, queries, keys):
        a, b, c = (data.draw(hnp.arrays(np.bool_, (queries, keys))) for _ in range(3))
        live = data.draw(hnp.arrays(np.bool_, (queries,)))
        marks = overlay(queries, keys, {"a": of(a), "b": of(b), "c": of(c)})
        assert np.array_equal(marks.select("a", "b", without="c", rows=live).dense(), a & b & ~c & live[:, None])
        assert marks.equal("a", "b") == np.array_equal(a, b)
        assert marks.equal("a", "b", live, "c") == np.array_equal((a & c)[live], (b & c)[live])
        assert marks.opposite("a", "b", live) == bool(live.any() and np.array_equal(a[live], ~b[live]))

    holds()


@given(st.data(), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_pairs_count_each_cell_once(data, queries, keys):
    matrix = data.draw(hnp.arrays(np.bool_, (queries, keys)))
    readers = np.sort(data.draw(hnp.arrays(np.int64, (queries,), elements=st.integers(-1, 3))))
    read = np.array(data.draw(hnp.arrays(np.int64, (keys,), elements=st.integers(-1, 3))))
    pairs, complete = of(matrix).pairs(readers, read)
    want = {(int(a), int(b)): int(matrix[readers == a][:, read == b].sum()) for a in readers for b in read}
    assert complete
    assert {(a, b): n for a, b, n in pairs} == {pair: n for pair, n in want.items() if n}


def test_a_flipped_cell_of_a_named_mask_is_that_cell():
    from kev_engine.doctor.masks import read_mask
    from kev_engine.isolation.layout import pack
    from kev_engine.isolation.mask import dense

    mask = read_mask("attention_mask", {"block_causal": [2, 3], "flip": [[3, 0], [4, 4], [3, 0]]}, None)
    right = dense(pack([2, 3]))
    right[3, 0], right[4, 4] = True, False
    assert np.array_equal(mask.cells(0, lambda values: values > 0).dense(), right)
    assert mask.count(lambda values: values > 0) == right.sum()
    assert np.array_equal(mask.line(3), right[3])
    hidden = read_mask("attention_mask", {"tril": 1, "as": "block", "flip": [[0, 0]]}, None)
    assert hidden.distinct().tolist() == [1.0]
