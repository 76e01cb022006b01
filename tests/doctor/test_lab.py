"""Every fault of the fault lab: the real model runs with it, and the doctor, given the faulty arrays, names it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kev_engine.config import EngineConfig
from kev_engine.doctor.lab import NAMES, broken_batch, executed_cells
from kev_engine.doctor.report import diagnose
from kev_engine.isolation.faults import FAULTS
from kev_engine.isolation.mask import dense
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question, SharedContext
from tests.models.tiny import tiny_adapter, tiny_folder

QUESTIONS = [Question(name, f"Who is {name}? " + "far away " * count, max_new_tokens=3)
             for count, name in enumerate(("anna", "bert", "cleo"))]
SHARED = [SharedContext("sea", "The sea is deep and salty.")]
READERS = [Question(name, f"Why {name}?", shared="sea", max_new_tokens=2) for name in ("deep", "salty")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tiny_folder(tmp_path_factory.mktemp("lab"), "llama")
    with Engine(EngineConfig(model=str(folder), threads=1, kv_budget_bytes=1 << 22)) as engine:
        yield engine


def test_every_fault_has_its_name():
    assert NAMES.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"adapter-shift"}))
def test_the_doctor_names_the_injected_fault(engine, name):
    audit = engine.audit(QUESTIONS, fault=name)
    report = diagnose(broken_batch(audit, FAULTS[name]))
    assert NAMES[name] in report.codes
    assert (report.verdict == "error") == (not audit.isolated)
    if name == "no-reset":
        assert [(finding.code, finding.level) for finding in report.findings] == [("POS_NOT_RESET", "note")]
    else:
        assert np.array_equal(report.will.dense(), executed_cells(audit, FAULTS[name])), "what the doctor draws was run"
    if name == "shift-interval":
        leak = next(finding for finding in report.findings if finding.code == "CROSS_SEGMENT_LEAK")
        assert leak.variant == "shifted"
        assert leak.facts["borders"] == [end for _, end in audit.layout.intervals][:-1]
        assert leak.facts["found_borders"] == [end + 1 for _, end in audit.layout.intervals][:-1]
    if name == "one-cell":
        assert report.findings[0].count == len(QUESTIONS) - 1


@pytest.mark.parametrize("name", [None, "no-reset"])
def test_a_right_run_is_found_right(engine, name):
    fault = FAULTS["no-reset"]
    audit = engine.audit(QUESTIONS, fault=name)
    assert np.array_equal(executed_cells(audit, None), dense(audit.layout))
    if name is None:
        assert diagnose(broken_batch(audit, fault)).findings == ()


@pytest.mark.parametrize("name", ["inverted", "one-cell", "no-causal", "float01", "ones-2d", "running-borders"])
def test_faults_show_over_a_shared_context_as_well(engine, name):
    audit = engine.audit(READERS, SHARED, fault=name)
    assert audit.layout.parents == (None, 0, 0)
    assert np.array_equal(executed_cells(audit, None), dense(audit.layout))
    batch = broken_batch(audit, FAULTS[name])
    assert batch["parents"] == [None, 0, 0]
    assert diagnose(batch).verdict == "error"


def test_answers_of_the_broken_run_come_with_the_proofs(engine):
    right, broken = engine.audit(QUESTIONS), engine.audit(QUESTIONS, fault="float01")
    assert [len(proof.token_ids) for proof in right.questions] == [3, 3, 3]
    assert [proof.token_ids for proof in right.questions] == [
        answer.token_ids for answer in engine.ask(QUESTIONS).answers]
    assert any(one.token_ids != other.token_ids for one, other in zip(right.questions, broken.questions, strict=True))


def test_a_shifted_adapter_is_named(tmp_path):
    folder, pirate = tiny_folder(tmp_path / "model"), tiny_adapter(tmp_path / "pirate", 1)
    config = EngineConfig(model=str(folder), kv_budget_bytes=1 << 20, adapters={"pirate": str(pirate)})
    asked = [Question("a", "Hi", adapter="pirate", max_new_tokens=1), Question("b", "Hello", max_new_tokens=1)]
    with Engine(config) as engine:
        audit = engine.audit(asked, fault="adapter-shift")
        assert not audit.isolated
        report = diagnose(broken_batch(audit, FAULTS["adapter-shift"]))
        assert report.codes == ("ADAPTER_MISROUTED",)
        assert report.findings[0].facts["meant"] == "pirate"
        assert len(report.findings[0].indexes) == audit.layout.num_tokens
        same = engine.audit([asked[1], Question("c", "Hello", max_new_tokens=1)], fault="adapter-shift")
        assert same.isolated, "harmless where all share one adapter"
        assert diagnose(broken_batch(same, FAULTS["adapter-shift"])).findings == ()
