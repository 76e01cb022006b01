"""The corrected arrays: put in place they are found right, and the Python form makes the very cells of the rule."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from kev_engine.doctor.consumer import decode
from kev_engine.doctor.python_form import as_python
from kev_engine.doctor.repair import CELL_CODES, form_of, repaired
from kev_engine.doctor.report import Report, diagnose
from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import dense
from tests.doctor.faults import FAULTS
from tests.doctor.rows import described, row, tree
from tests.doctor.test_properties import edits

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
COUNT = 15
# What no array can mend: another setting, another file, other text, another kernel.
OUT_OF_REACH = {"NOT_PACKABLE", "BACKEND_DTYPE", "SIZE_OVERFLOW", "PAD_SIDE", "ALIGN_TOP_LEFT"}


def cured(batch: dict[str, object]) -> Report:
    report = diagnose(batch)
    return diagnose(repaired(batch, report.repairs))


def run(report: Report) -> dict[str, object]:
    assert report.facts is not None
    program, made = as_python(report.repairs, report.facts), {}
    exec(program, made)
    return made


def check(batch: dict[str, object]) -> None:
    report = diagnose(batch)
    assert report.verdict == "error", batch
    assert cured(batch).findings == (), (batch, report.repairs)
    made = run(report)
    for key, value in report.repairs.items():
        if key == "attention_mask" and value is not None:
            seen = decode(made[key].float().numpy(), form_of(report.facts))
            assert np.array_equal(seen.reshape(seen.shape[-2:]), report.should.dense())
        elif key in ("position_ids", "cu_seqlens"):
            assert made[key].tolist() == value


@pytest.mark.parametrize("consumer", ["sdpa", "hf", "mha", "eager"])
def test_any_wrong_mask_is_cured(consumer):
    for seed in range(COUNT):
        random = Random(seed)
        cells = row(random, consumers=(consumer,), window=False, both_ways=False, pads=False)
        allowed = cells.allowed.copy()
        for _ in range(random.randint(1, 4)):
            allowed[random.randrange(cells.total), random.randrange(cells.total)] ^= True
        if not np.array_equal(allowed, cells.allowed):
            check(cells.batch(allowed))


def test_a_wrong_window_is_cured():
    for seed in range(3 * COUNT):
        random = Random(seed)
        layout, window, other = tree(random), random.randint(1, 5), random.randint(1, 6)
        if not np.array_equal(dense(layout, other), dense(layout, window)):
            check(described(layout, attention_mask=dense(layout, other)[None, None].tolist(), mask_dtype="bool",
                            consumer="sdpa", sliding_window=window))


def test_wrong_positions_and_borders_are_cured():
    for seed in range(COUNT):
        layout = tree(Random(seed), least=2, flat=True)
        running = list(range(layout.num_tokens))
        mask = dense(layout)[None, None].tolist()
        check(described(layout, attention_mask=mask, mask_dtype="bool", consumer="sdpa", position_ids=running))
        check(described(layout, position_ids=[running], consumer="hf"))
        cu = layout.cu_seqlens.tolist()
        varlen = described(layout, consumer="flash_varlen", dtype="bfloat16", cu_dtype="int32")
        check(varlen | {"cu_seqlens": cu[1:]})
        check(varlen | {"cu_seqlens": cu[:-1]})
        check(varlen | {"cu_seqlens": cu, "max_seqlen": max(layout.lengths) - 1})
        ones = {"ones": [1, layout.num_tokens]}
        check(described(layout, attention_mask=ones, consumer="hf"))
        check(described(layout, attention_mask=ones, consumer="hf", position_ids=running,
                        attn_implementation="flash_attention_2"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_single_fault_is_cured_where_its_repair_is_named(name):
    """What has exactly one right value and is put in place leaves no error, or is out of any array's reach."""
    for edit in edits(name, 3):
        report = diagnose(edit.wrong)
        if report.repairs:
            after = diagnose(repaired(edit.wrong, report.repairs))
            left = {finding.code for finding in after.findings if finding.level != "note"} - OUT_OF_REACH
            open_ = {finding.code for finding in report.findings if finding.expected is None} - CELL_CODES
            assert left <= open_, (report.repairs, edit.wrong)


def test_a_long_row_is_named_not_written():
    layout = pack([400, 700, 300])
    batch = described(layout, attention_mask={"ones": [1, 1400]}, consumer="hf")
    report = diagnose(batch)
    assert report.repairs["attention_mask"] == {"block_causal": [400, 700, 300], "as": "keep", "repeat": [1, 1]}
    assert cured(batch).findings == ()
    assert torch.equal(run(report)["attention_mask"][0, 0], torch.tensor(dense(layout)))
    tree = pack([400, 700, 300], [None, 0, 0])
    report = diagnose(described(tree, attention_mask={"ones": [1, 1400]}, consumer="hf"))
    assert "attention_mask" not in report.repairs


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_repair_of_a_case_leaves_nothing_that_it_was_for(path):
    batch = json.loads(path.read_text(encoding="utf-8"))["batch"]
    report = diagnose(batch, path.parent)
    if not report.repairs:
        return
    compile(as_python(report.repairs, report.facts), path.stem, "exec")
    after = diagnose(repaired(batch, report.repairs), path.parent)
    left = {finding.code for finding in after.findings if finding.level != "note"} - OUT_OF_REACH
    assert left == set(), report.repairs
    # Rows of padding that the right mask leaves empty, and positions that go on, are told as notes.
    assert set(after.codes) - set(report.codes) <= {"OK_CONTINUATION", "ROW_EMPTY"}


def test_every_code_of_cells_is_a_code():
    from tests.doctor import oracle

    assert set(oracle.CODES) >= CELL_CODES
