"""A profiled run answers the same, its phases fill its time, and nothing of the profile stays behind."""

import json

from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.profile import table
from kev_engine.schema import Question
from tests.models.tiny import tiny_folder


def test_a_profiled_run(tmp_path):
    folder = str(tiny_folder(tmp_path / "m", "llama"))
    asked = [Question(f"q{index}", "Hello?", max_new_tokens=4, ignore_eos=True) for index in range(3)]
    trace = tmp_path / "trace.json"
    with Engine(EngineConfig(model=folder, kv_budget_bytes=1 << 20, prefix_cache_bytes=0)) as engine:
        plain = engine.ask(asked)
        hooks = [len(module._forward_hooks) for module in engine._runner.model.modules()]
        with engine.profiled(trace) as profile:
            run = engine.ask(asked)
        assert [answer.token_ids for answer in run.answers] == [answer.token_ids for answer in plain.answers]
        assert [len(module._forward_hooks) for module in engine._runner.model.modules()] == hooks
        assert engine._worker.runner is engine._runner
    phases = profile.phases(run.stats)
    assert [*phases] == ["plan", "products", "attention", "other", "sampling", "text"]
    assert all(spent > 0 for spent in phases.values()), phases
    forward = phases["products"] + phases["attention"] + phases["other"]
    assert abs(forward - run.stats.forward_ms) < 1e-6
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"kev products", "kev attention"} <= names
    lines = table(phases, len(run.stats.tokens_per_forward)).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*phases, "total"]
    assert lines[-1].endswith("100.0%")
