"""Public bug reports as small inputs, and controls that must stay clean: each is one test."""

import json
from pathlib import Path

import pytest

from kev_engine.doctor.report import diagnose
from tests.doctor import oracle

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path):
    case = json.loads(path.read_text(encoding="utf-8"))
    assert oracle.problems_of_format(case, path.stem) == []
    _, wrong, _ = oracle.check_numbers(case)
    assert wrong == [], "the case itself is wrong"
    report = json.loads(json.dumps(diagnose(case["batch"], path.parent).as_json(), allow_nan=False))
    assert oracle.compare_report(case, report, 1 if report["verdict"] == "error" else 0) == []


def test_the_cases_are_there():
    assert len(CASES) >= 98


def test_every_code_of_a_case_is_a_code_of_the_format():
    """The oracle's table and the catalogue of sentences name the same codes."""
    from kev_engine.doctor.english import ENGLISH

    written = {key.split(".")[0] for key in ENGLISH if not key.startswith("assumed.")}
    assert written == set(oracle.CODES)


def test_the_page_lists_every_code_and_key():
    from kev_engine.doctor.batch import MASK_KEYS, READERS

    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}
    assert set(oracle.CODES) <= listed
    assert all(f"`{key}`" in page for key in [*READERS, *MASK_KEYS])


def test_every_sentence_can_be_filled_from_the_reports_of_the_cases():
    for path in CASES:
        for finding in diagnose(json.loads(path.read_text(encoding="utf-8"))["batch"], path.parent).findings:
            for sentence in (finding.message, finding.repair):
                assert "None" not in sentence, (path.stem, sentence)
                assert "{" not in sentence.replace("{'", ""), (path.stem, sentence)
