"""Bands are the cells, each once; a mask of any tree, window or fault travels as few of them."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from kev_engine.doctor.bands import bands, blocks, window
from kev_engine.doctor.cells import Cells
from kev_engine.doctor.layouts import from_borders
from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import dense

matrices = hnp.arrays(np.bool_, st.tuples(st.integers(1, 8), st.integers(1, 8)))


def of(matrix: np.ndarray) -> Cells:
    return Cells.from_chunks(*matrix.shape, [matrix])


def drawn(table: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The matrix that bands stand for; a cell drawn twice is a mistake."""
    cells = np.zeros(shape, dtype=int)
    for row, row_end, key, key_end, slides, grows in table:
        for index in range(row_end - row):
            cells[row + index, key + index * slides : key_end + index * grows] += 1
    assert cells.max(initial=0) <= 1
    return cells.astype(bool)


@given(matrices)
@settings(max_examples=80, deadline=None)
def test_bands_are_the_cells(matrix):
    assert np.array_equal(drawn(bands(of(matrix)), matrix.shape), matrix)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.none() | st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_the_rule_is_at_most_two_bands_a_segment(lengths, width):
    layout = pack(lengths)
    table = bands(of(dense(layout, width)))
    assert np.array_equal(drawn(table, (layout.num_tokens, layout.num_tokens)), dense(layout, width))
    assert len(table) <= (1 if width is None else 2) * layout.num_segments


def test_one_leak_in_32k_tokens_is_one_band_more():
    total = 32768
    right = from_borders(range(0, total + 1, 512), total, "lengths").visible()
    leak = Cells(total, total, np.array([20000 * total + 3]), np.array([20000 * total + 4]))
    assert len(bands(right)) == 64
    assert bands(leak).tolist() == [[20000, 20001, 3, 4, 0, 1]]
    coarse = blocks(leak, 128)
    assert (coarse.num_queries, coarse.count, coarse.first()) == (256, 1, (20000 // 128, 0))


@given(st.data(), matrices)
@settings(max_examples=60, deadline=None)
def test_a_window_is_that_part_of_the_matrix(data, matrix):
    queries, keys = (sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in matrix.shape)
    part = np.zeros_like(matrix)
    part[queries[0] : queries[1], keys[0] : keys[1]] = matrix[queries[0] : queries[1], keys[0] : keys[1]]
    assert np.array_equal(window(of(matrix), tuple(queries), tuple(keys)).dense(), part)


@given(matrices, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_a_block_with_one_cell_is_seen(matrix, step):
    coarse = blocks(of(matrix), step)
    for row in range(coarse.num_queries):
        for key in range(coarse.num_keys):
            some = matrix[row * step : (row + 1) * step, key * step : (key + 1) * step].any()
            assert coarse.dense()[row, key] == some
