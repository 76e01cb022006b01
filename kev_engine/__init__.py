"""Kev's engine: several questions in one forward pass, isolated.

The public names resolve on first use, so that `kev_engine.diagnose` on plain arrays starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Answer": "schema", "Message": "schema", "Question": "schema", "Run": "schema", "RunStats": "schema",
    "SamplingParams": "schema", "SharedContext": "schema",
    "EngineConfig": "config",
    "KevError": "errors", "InputError": "errors",
    "PackedLayout": "isolation.layout", "pack": "isolation.layout", "StepPlan": "isolation.plan",
    "Finished": "runtime.events", "PlanMade": "runtime.events", "Prefilling": "runtime.events",
    "Refused": "runtime.events", "RunFinished": "runtime.events", "Step": "runtime.events",
    "TextDelta": "runtime.events",
    "Audit": "runtime.audit",
    "Engine": "runtime.engine",
    "diagnose": "doctor.report",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from kev_engine.runtime.engine import Engine as Engine


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
