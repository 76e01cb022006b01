"""Random right batches raise nothing; one random fault raises its code and nothing but its documented consequences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kev_engine.doctor.report import Report, diagnose
from kev_engine.isolation.mask import dense
from tests.doctor import oracle
from tests.doctor.faults import FAULTS, Edit, Unfit
from tests.doctor.right import RIGHT
from tests.doctor.rows import Description, described, tree

COUNT = 2000 if os.environ.get("KEV_SOAK") == "1" else 12
PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
# Codes that no edit of a right batch brings, each with the reason.
WITHOUT_A_FAULT = {"OK_CONTINUATION": "a note about a right batch: positions that go on behind a cache"}
# What a right batch may be told without being wrong.
HARMLESS = {"OK_CONTINUATION", "ROW_EMPTY", "POS_NOT_RESET"}


def consequences() -> dict[str, tuple[set[str], set[str]]]:
    """The table of docs/doctor.md: by fault its own codes, and those that may come with them."""
    lines = PAGE.read_text(encoding="utf-8").split("## Consequences")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    return {name: (set(own.split(" or ")), set(filter(None, more.split(", ")))) for name, own, more in rows}


CONSEQUENCES = consequences()


def edits(name: str, count: int) -> Iterator[Edit]:
    """`count` faults of one name, its makers by turns; each draw has a seed of its own."""
    makers = FAULTS[name]
    for maker in makers:
        found = seed = 0
        while found < max(1, count // len(makers)):
            seed += 1
            assert seed < 60 * (found + 20), f"{name}: most draws have no room for it"
            try:
                yield maker(Random(f"{name} {seed}"))
            except Unfit:
                continue
            found += 1


def alarms(report: Report) -> list[str]:
    return [finding.code for finding in report.findings if finding.level != "note" or finding.code not in HARMLESS]


def differences(report: Report, batch: Description) -> list[str]:
    """Where a finding says another number, place or correction than the oracle, which knows lists alone."""
    if any(isinstance(value, np.ndarray) or hasattr(value, "detach") for value in batch.values()):
        return []
    if "parents" in batch and "sliding_window" in batch:
        return []
    if np.ndim(batch.get("position_ids", 0)) > 2 or len(batch.get("position_ids", ())) == 3 != len(
            batch.get("input_ids", ())):
        return []
    known = oracle.Row(batch)
    told = oracle.others(batch, known)
    for code, facts in oracle.cells(batch, known)[0].items():
        told[code] = told.get(code, {}) | facts
    wrong = []
    for finding in report.findings:
        # Of a span it knows only what labels say of it.
        mine = finding.as_json() if finding.code != "SPAN_OVERRUN" or not finding.variant else {}
        for key, value in told.get(finding.code, {}).items():
            if key in mine and not oracle.agree(oracle.ordered(key, value), oracle.ordered(key, mine[key]), both=False):
                wrong.append(f"{finding.code}.{key}: {mine[key]}, the oracle has {value}")
    return wrong


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_batch_raises_nothing(kind):
    for seed in range(COUNT * 2):
        batch = RIGHT[kind](Random(f"{kind} {seed}"))
        assert alarms(diagnose(batch)) == [], batch


@pytest.mark.parametrize("name", FAULTS)
def test_a_single_fault_is_named_with_no_more_than_its_consequences(name):
    own, more = CONSEQUENCES[name]
    for edit in edits(name, COUNT):
        assert set(edit.codes) <= own, edit.codes
        before, report = diagnose(edit.right), diagnose(edit.wrong)
        assert alarms(before) == [], edit.right
        # Notes about padding stand there before and after.
        codes = {finding.code for finding in report.findings
                 if finding.level != "note" or finding.code not in before.codes}
        assert codes & set(edit.codes), (edit.codes, codes, edit.wrong)
        assert codes <= set(edit.codes) | more, (codes - set(edit.codes) - more, edit.wrong)
        assert differences(report, edit.wrong) == [], edit.wrong
        if name == "left padding counted, rotary positions":
            assert report.verdict == "note"


def test_the_table_of_the_page_lists_the_faults():
    assert sorted(CONSEQUENCES) == sorted(FAULTS)


def test_every_code_has_a_fault_or_a_reason():
    """A new code needs a random edit that brings it, or a reason why there is none."""
    made = {code for own, _ in CONSEQUENCES.values() for code in own}
    assert made | set(WITHOUT_A_FAULT) == set(oracle.CODES)
    assert not made & set(WITHOUT_A_FAULT)


def test_cells_are_those_of_the_oracle():
    """Any mask over any tree, with pads, both ways or causal: code, count, indexes and pairs as the oracle has them."""
    codes = {"CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "HIDDEN_KEYS", "ROW_EMPTY"}
    for seed in range(COUNT * 5):
        random = Random(seed)
        layout = tree(random)
        total = layout.num_tokens
        if total == 1:
            continue
        allowed = dense(layout)
        for _ in range(random.randint(0, 3)):
            allowed[random.randrange(total), random.randrange(total)] ^= True
        if random.random() < 0.3:
            allowed = np.tril(np.ones((total, total), dtype=bool))
        batch = described(layout, attention_mask=allowed[None, None].tolist(), mask_dtype="bool", consumer="sdpa",
                          want_causal=random.random() < 0.5)
        if random.random() < 0.5 and "parents" not in batch and layout.num_segments > 1:
            batch["pad_segments"] = [layout.num_segments - 1]
        del batch["position_ids"]
        facts, known = oracle.cells(batch, oracle.Row(batch))
        assert known
        mine = {finding.code: finding.as_json() for finding in diagnose(batch).findings}
        assert set(mine) & codes == set(facts) & codes, batch
        for code in set(facts) & codes:
            for key, value in facts[code].items():
                found = mine[code][key]
                assert oracle.agree(oracle.ordered(key, value), oracle.ordered(key, found)), (code, key, batch)
