"""Random right batches raise nothing; one random fault raises its code and nothing but its documented consequences."""

import os

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume, given, settings

from kev_engine.doctor.report import diagnose
from kev_engine.isolation.layout import PackedLayout, pack
from kev_engine.isolation.mask import dense
from tests.doctor import oracle

SOAK = os.environ.get("KEV_SOAK") == "1"
EXAMPLES = settings(max_examples=5000 if SOAK else 150, deadline=None, derandomize=not SOAK)
LEAST = float(np.finfo(np.float32).min)

# What a fault may bring with it, as docs/doctor.md lists it.
CELLS = {"CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "HIDDEN_KEYS", "ROW_EMPTY"}
CONSEQUENCES = {
    "shifted border": CELLS | {"BOUNDARY_CONFLICT"},
    "cell opened": {"CROSS_SEGMENT_LEAK", "LEAK_FUTURE"},
    "cell closed": {"HIDDEN_KEYS", "ROW_EMPTY"},
    "reset dropped": {"POS_NOT_RESET"},
    "reset dropped, positions obeyed": {"POS_NOT_RESET", "CROSS_SEGMENT_LEAK"},
    "entries swapped": {"CU_NEGATIVE"},
    "inverted": CELLS | {"MASK_INVERTED"},
    "0/1 floats added": CELLS | {"MASK_VALUES_AS_BIAS"},
    "causal dropped": {"LEAK_FUTURE"},
    "ones beside restarted positions": {"CROSS_SEGMENT_LEAK", "BOUNDARY_CONFLICT"},
    "leading zero dropped": {"CU_NO_LEADING_ZERO"},
    "entry doubled": {"CU_ZERO_LENGTH"},
    "last entry dropped": {"CU_END", "HIDDEN_KEYS", "ROW_EMPTY"},
    "position stuck": {"POS_FROZEN", "BOUNDARY_CONFLICT"},
    "counted from one": {"POS_START"},
}


@st.composite
def layouts(draw: st.DrawFn, least: int = 1, flat: bool = False) -> PackedLayout:
    lengths = draw(st.lists(st.integers(1, 5), min_size=least, max_size=5))
    if flat:
        return pack(lengths)
    return pack(lengths, [draw(st.none() | st.integers(0, index - 1)) if index else None
                          for index in range(len(lengths))])


def described(layout: PackedLayout, **more: object) -> dict[str, object]:
    batch: dict[str, object] = {"segments": [list(interval) for interval in layout.intervals],
                                "position_ids": layout.position_ids.tolist()}
    if any(parent is not None for parent in layout.parents):
        batch["parents"] = list(layout.parents)
    return batch | more


def with_mask(layout: PackedLayout, allowed: np.ndarray | None = None, **more: object) -> dict[str, object]:
    allowed = dense(layout) if allowed is None else allowed
    # Four axes, so that a row of one token is no keep mask.
    return described(layout, attention_mask=allowed[None, None].tolist(), mask_dtype="bool", consumer="sdpa") | more


def check(batch: dict[str, object], code: str, fault: str) -> None:
    codes = set(diagnose(batch).codes)
    assert code in codes, (code, codes, batch)
    assert codes <= CONSEQUENCES[fault], (codes - CONSEQUENCES[fault], batch)


REPRESENTATIONS = ("bool", "block", "additive", "numpy", "tensor", "varlen", "positions", "flash", "window", "encoder",
                   "padded")


@given(st.data(), st.sampled_from(REPRESENTATIONS))
@EXAMPLES
def test_a_right_batch_raises_nothing(data, form):
    layout = data.draw(layouts(flat=form in ("varlen", "positions", "flash")))
    allowed = dense(layout)
    fill = np.where(allowed, 0.0, data.draw(st.sampled_from([LEAST, -1e4, -1e9]))).astype(np.float32)
    if form == "bool":
        batch = with_mask(layout)
    elif form == "block":
        batch = with_mask(layout, ~allowed, consumer="mha", num_heads=1)
        batch["attention_mask"] = (~allowed)[None].tolist()
    elif form == "additive":
        batch = with_mask(layout, attention_mask=fill[None, None].tolist(), mask_dtype="float32", dtype="float32",
                          mask_meaning="additive", consumer="hf", attn_implementation="eager")
    elif form == "numpy":
        batch = with_mask(layout, attention_mask=fill[None, None], dtype="float32")
        del batch["mask_dtype"]
        batch["position_ids"] = np.array(batch["position_ids"])
    elif form == "tensor":
        import torch

        batch = with_mask(layout, attention_mask=torch.tensor(allowed)[None, None],
                          position_ids=torch.tensor(layout.position_ids)[None])
    elif form == "varlen":
        cu = layout.cu_seqlens.tolist()
        batch = described(layout, cu_seqlens=cu, max_seqlen=max(layout.lengths), cu_dtype="int32", dtype="bfloat16",
                          device="cuda", consumer="flash_varlen")
    elif form == "positions":
        batch = described(layout, consumer="hf", library="transformers 4.57.1")
    elif form == "flash":
        batch = described(layout, consumer="hf", attn_implementation="flash_attention_2", dtype="float16",
                          device="cuda", attention_mask={"ones": [1, layout.num_tokens]})
    elif form == "window":
        window = data.draw(st.integers(1, 6))
        batch = with_mask(layout, dense(layout, window), sliding_window=window)
    elif form == "encoder":
        flat = pack(layout.lengths)
        batch = with_mask(flat, np.equal(flat.segment_ids[:, None], flat.segment_ids[None]), want_causal=False)
    else:
        rows, width = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 6))
        pads = [data.draw(st.integers(0, width - 1)) for _ in range(rows)]
        keep = [[0] * pad + [1] * (width - pad) for pad in pads]
        batch = {"attention_mask": keep, "input_ids": [[9 if k else 0 for k in line] for line in keep],
                 "position_ids": [[0] * pad + list(range(width - pad)) for pad in pads], "pad_token_id": 0,
                 "decode_positions": [[width - pad, width - pad + 1] for pad in pads], "padding_side": "left",
                 "task": "generate", "read_index": -1, "consumer": "hf"}
    findings = [finding for finding in diagnose(batch).findings
                if not (form == "padded" and finding.code == "ROW_EMPTY" and finding.level == "note")]
    assert findings == [], batch


@given(st.data())
@EXAMPLES
def test_a_border_shifted_by_one(data):
    layout = data.draw(layouts(least=2, flat=True))
    border = data.draw(st.integers(0, layout.num_segments - 2))
    assume(layout.lengths[border] > 1)
    lengths = list(layout.lengths)
    lengths[border] -= 1
    lengths[border + 1] += 1
    check(with_mask(layout, dense(pack(lengths))), "CROSS_SEGMENT_LEAK", "shifted border")
    varlen = described(layout, cu_seqlens=pack(lengths).cu_seqlens.tolist(), consumer="flash_varlen", dtype="bfloat16")
    check(varlen, "BOUNDARY_CONFLICT", "shifted border")


@given(st.data())
@EXAMPLES
def test_one_cell_flipped(data):
    layout = data.draw(layouts())
    total = layout.num_tokens
    query, key = data.draw(st.integers(0, total - 1)), data.draw(st.integers(0, total - 1))
    allowed = dense(layout)
    allowed[query, key] ^= True
    if not allowed[query, key]:
        # The only cell of a one-token row: its opposite is an inverted mask as well.
        assume(total > 1)
        check(with_mask(layout, allowed), "HIDDEN_KEYS", "cell closed")
        return
    own = layout.segment_ids[query] == layout.segment_ids[key]
    check(with_mask(layout, allowed), "LEAK_FUTURE" if own else "CROSS_SEGMENT_LEAK", "cell opened")


@given(st.data())
@EXAMPLES
def test_one_position_reset_dropped(data):
    layout = data.draw(layouts(least=2, flat=True))
    segment = data.draw(st.integers(1, layout.num_segments - 1))
    start, end = layout.intervals[segment]
    positions = layout.position_ids.copy()
    positions[start:end] = positions[start - 1] + 1 + np.arange(end - start)
    check(with_mask(layout, position_ids=positions.tolist()), "POS_NOT_RESET", "reset dropped")
    check(described(layout, position_ids=positions.tolist(), consumer="hf"), "POS_NOT_RESET",
          "reset dropped, positions obeyed")
    rope = diagnose(with_mask(layout, position_ids=positions.tolist(), position_kind="rope"))
    assert rope.verdict == "note"


@given(st.data())
@EXAMPLES
def test_faults_of_boundaries(data):
    layout = data.draw(layouts(least=3, flat=True))
    cu = layout.cu_seqlens.tolist()
    base = {"lengths": list(layout.lengths), "consumer": "flash_varlen", "dtype": "bfloat16", "cu_dtype": "int32"}
    place = data.draw(st.integers(1, len(cu) - 3))
    swapped = cu.copy()
    swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    check(base | {"cu_seqlens": swapped}, "CU_NEGATIVE", "entries swapped")
    check(base | {"cu_seqlens": cu[1:]}, "CU_NO_LEADING_ZERO", "leading zero dropped")
    check(base | {"cu_seqlens": [*cu[:place], cu[place], *cu[place:]]}, "CU_ZERO_LENGTH", "entry doubled")
    check(base | {"cu_seqlens": cu[:-1]}, "CU_END", "last entry dropped")


@given(st.data())
@EXAMPLES
def test_faults_of_masks(data):
    layout = data.draw(layouts())
    allowed, total = dense(layout), layout.num_tokens
    assume(total > 1)
    check(with_mask(layout, ~allowed), "MASK_INVERTED", "inverted")
    floats = with_mask(layout, attention_mask=allowed[None, None].astype(np.float32).tolist(), mask_dtype="float32",
                       dtype="float32")
    check(floats, "MASK_VALUES_AS_BIAS", "0/1 floats added")
    related = np.triu(np.equal(layout.segment_ids[:, None], layout.segment_ids[None])) | allowed
    if not np.array_equal(related, allowed):
        check(with_mask(layout, related), "LEAK_FUTURE", "causal dropped")


@given(st.data())
@EXAMPLES
def test_faults_of_positions(data):
    layout = data.draw(layouts(flat=True))
    check(with_mask(layout, position_ids=(layout.position_ids + 1).tolist()), "POS_START", "counted from one")
    if layout.num_segments > 1:
        ones = described(layout, attention_mask={"ones": [1, layout.num_tokens]}, consumer="hf")
        check(ones, "CROSS_SEGMENT_LEAK", "ones beside restarted positions")
    long = [segment for segment, length in enumerate(layout.lengths) if length > 2]
    if long:
        start, end = layout.intervals[data.draw(st.sampled_from(long))]
        stuck = layout.position_ids.copy()
        stuck[start + 1 : end] = 1
        check(with_mask(layout, position_ids=stuck.tolist()), "POS_FROZEN", "position stuck")


def numbers(finding: dict[str, object]) -> dict[str, object]:
    return {key: finding[key] for key in ("count", "indexes", "pairs") if finding[key] is not None}


@given(st.data())
@EXAMPLES
def test_cells_are_those_of_the_oracle(data):
    """Any mask over any tree, with pads, both ways or causal: code, count, indexes and pairs as the oracle has them."""
    layout = data.draw(layouts())
    total = layout.num_tokens
    assume(total > 1)
    allowed = dense(layout)
    for _ in range(data.draw(st.integers(0, 3))):
        query, key = data.draw(st.integers(0, total - 1)), data.draw(st.integers(0, total - 1))
        allowed[query, key] ^= True
    if data.draw(st.booleans()):
        allowed = np.tril(np.ones((total, total), dtype=bool))
    batch = with_mask(layout, allowed, want_causal=data.draw(st.booleans()))
    if data.draw(st.booleans()) and "parents" not in batch and layout.num_segments > 1:
        batch["pad_segments"] = [layout.num_segments - 1]
    del batch["position_ids"]
    facts, known = oracle.cells(batch, oracle.Row(batch))
    assert known
    mine = {finding.code: finding.as_json() for finding in diagnose(batch).findings}
    codes = {"CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "HIDDEN_KEYS", "ROW_EMPTY"}
    assert set(mine) & codes == set(facts) & codes, batch
    for code in set(facts) & codes:
        for key, value in facts[code].items():
            assert oracle.agree(oracle.ordered(key, value), oracle.ordered(key, mine[code][key])), (code, key, batch)
