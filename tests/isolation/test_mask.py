"""The rule against rows written out by hand, and every derived form against the dense one."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from kev_engine.errors import InvalidField
from kev_engine.isolation import mask
from kev_engine.isolation.layout import PackedLayout, pack


@st.composite
def layouts(draw: st.DrawFn) -> PackedLayout:
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    parents = [draw(st.none() | st.integers(0, index - 1)) if index else None for index in range(len(lengths))]
    return pack(lengths, parents)


def test_two_segments_by_hand():
    assert mask.dense(pack([3, 2])).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_shared_prefix_by_hand():
    """Two branches on one prefix (BR-161): each reads the prefix and itself, never its sibling."""
    layout = pack([4, 3, 2], [None, 0, 0])
    assert layout.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 6, 4, 5]
    assert mask.count_allowed(layout) == 39
    assert list(mask.runs(layout)) == [
        [(0, 1)], [(0, 2)], [(0, 3)], [(0, 4)], [(0, 5)], [(0, 6)], [(0, 7)], [(0, 4), (7, 8)], [(0, 4), (7, 9)],
    ]


def test_window_by_hand():
    assert mask.dense(pack([4, 1]), window=2).astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]


@given(layouts(), st.none() | st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_runs_and_counts_are_the_dense_mask(layout: PackedLayout, window: int | None):
    allowed = mask.dense(layout, window)
    assert mask.count_allowed(layout, window) == allowed.sum()
    for row, runs in enumerate(mask.runs(layout, window)):
        drawn = np.zeros(layout.num_tokens, dtype=bool)
        for start, end in runs:
            assert start < end
            drawn[start:end] = True
        assert (drawn == allowed[row]).all()
        assert all(left[1] < right[0] for left, right in pairwise(runs)), "runs touch"


@given(layouts())
@settings(max_examples=100, deadline=None)
def test_every_query_reads_itself_and_nobody_unrelated(layout: PackedLayout):
    allowed = mask.dense(layout)
    related = mask.relations(layout)
    assert allowed.diagonal().all()
    for query, key in np.argwhere(allowed):
        assert related[layout.segment_ids[query], layout.segment_ids[key]]
        assert layout.position_ids[key] <= layout.position_ids[query]


def test_the_additive_form_is_finite_everywhere():
    """A row that may read nothing gives numbers, not NaN, in every dtype."""
    allowed = torch.tensor([[True, False], [False, False]])
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        bias = mask.additive(allowed, dtype)
        assert bias.dtype == dtype
        assert torch.isfinite(bias).all()
        assert torch.softmax(bias[1].float(), dim=0).isfinite().all()


@pytest.mark.parametrize(("lengths", "parents", "field"), [
    ([3, -1], None, "lengths[1]"),
    ([3, 2], [None], "parents"),
    ([3, 2], [None, 1], "parents[1]"),
    ([3, 2], [1, None], "parents[0]"),
])
def test_a_layout_that_makes_no_sense_names_its_fault(lengths, parents, field):
    with pytest.raises(InvalidField, match=r"parents|lengths") as caught:
        pack(lengths, parents)
    assert caught.value.field == field


@given(layouts(), st.none() | st.integers(1, 8), st.booleans())
@settings(max_examples=300, deadline=None)
def test_run_arrays_are_the_dense_mask(layout: PackedLayout, window: int | None, both_ways: bool):
    """`both_ways` keeps only the relation (and the window's backward reach), as an encoder reads."""
    right = mask.dense(layout, window)
    if both_ways:
        related = mask.relations(layout)[layout.segment_ids][:, layout.segment_ids]
        back = layout.position_ids[:, None] - layout.position_ids[None, :]
        right = related & (back < window if window is not None else True)
    drawn = np.zeros_like(right)
    for row, first, last in zip(*mask.run_arrays(layout, window, both_ways), strict=True):
        assert first < last
        assert not drawn[row, first:last].any()
        drawn[row, first:last] = True
    assert np.array_equal(drawn, right)
