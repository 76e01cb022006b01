"""An audit tells how far it is, ends in the verdict of `audit`, and can be given up between two forwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from kev_engine.config import EngineConfig
from kev_engine.errors import EngineClosed, InvalidField
from kev_engine.runtime.audit import Audit
from kev_engine.runtime.audit_stream import AuditProgress
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder

ASKED = [Question("A", "Hello?", max_new_tokens=5), Question("B", "Who is there, fox or dog?", max_new_tokens=3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engine(folder: Path):
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20), check=True) as started:
        yield started


def test_progress_counts_every_forward_and_the_verdict_comes_last(engine):
    *progress, verdict = engine.audit_stream(ASKED)
    assert isinstance(verdict, Audit)
    assert verdict.to_json() == engine.audit(ASKED).to_json()
    proofs = [event for event in progress if event.total]
    assert [event.done for event in proofs] == list(range(proofs[0].total))
    assert len(progress) - len(proofs) == verdict.num_steps
    assert proofs[0].total == len(ASKED) * (1 + 2 * verdict.num_steps)


def test_an_audit_that_is_given_up_ends_early_and_frees_the_engine(engine):
    stream = engine.audit_stream(ASKED)
    seen = []
    for event in stream:
        seen.append(event)
        stream.cancel()
    assert all(isinstance(event, AuditProgress) for event in seen)
    assert engine.ask(ASKED).answers[0].finish_reason == "length"
    assert engine.adapters.list() == ()


def test_what_cannot_be_audited_is_said_before_it_starts(engine):
    with pytest.raises(InvalidField):
        engine.audit_stream(ASKED, fault="sneeze")
    with pytest.raises(InvalidField):
        engine.audit_stream([Question("A", "Hello?", max_new_tokens=0)])


def test_closing_the_engine_ends_an_audit_at_its_next_forward(folder):
    engine = Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20))
    streams = [engine.audit_stream(ASKED) for _ in range(20)]
    next(iter(streams[0]))
    engine.close()
    with pytest.raises(EngineClosed):
        list(streams[-1])
