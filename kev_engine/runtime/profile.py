"""Profile: where a run's time goes, as a table of phases and as a trace for Chrome (chrome://tracing, Perfetto)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function
from torch.utils.hooks import RemovableHandle

from kev_engine.attention.base import AttentionBackend, LayerFacts
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.plan import StepPlan
from kev_engine.models.products import Joined
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.schema import RunStats


@dataclass
class Clock:
    """Milliseconds by phase, and what else the trace shows them under."""

    spent_ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A block that counts for this phase."""
        start = time.perf_counter()
        with record_function(f"kev {name}"):
            yield
        self.spent_ms[name] = self.spent_ms.get(name, 0.0) + (time.perf_counter() - start) * 1e3


class TimedBackend:
    """A backend whose time is counted."""

    def __init__(self, inner: AttentionBackend, clock: Clock) -> None:
        self.inner, self.clock = inner, clock
        self.name, self.capabilities, self.page_tokens = inner.name, inner.capabilities, inner.page_tokens

    def unsupported(self, needs: frozenset[str], device: torch.device, shape: KVShape) -> str | None:
        return self.inner.unsupported(needs, device, shape)

    def lone_rows(self, state: Any, window: int | None) -> None:
        return None

    def prepare(self, plan: StepPlan, storage: KVStorage, windows: frozenset[int | None]) -> Any:
        with self.clock.phase("attention"):
            return self.inner.prepare(plan, storage, windows)

    def attend(self, layer: LayerFacts, query: torch.Tensor, storage: KVStorage, state: Any) -> torch.Tensor:
        with self.clock.phase("attention"):
            return self.inner.attend(layer, query, storage, state)


class Profile:
    """Counts while it is started. `start` and `stop` are called on the thread that runs the model."""

    def __init__(self, runner: ModelRunner) -> None:
        self.clock = Clock()
        self.runner = replace(runner, backend=TimedBackend(runner.backend, self.clock))
        self._model = runner.model
        self._open: list[Any] = []
        self._handles: list[RemovableHandle] = []
        self._torch = torch.profiler.profile(activities=[ProfilerActivity.CPU])

    def start(self) -> None:
        """Hook every product and start the trace."""
        for module in self._model.modules():
            if isinstance(module, (nn.Linear, Joined)):
                # First in, last out: an adapter's part, a hook of its own, is not the product's time.
                self._handles.append(module.register_forward_pre_hook(self._enter))
                self._handles.append(module.register_forward_hook(self._leave, prepend=True))
        self._torch.start()

    def stop(self, trace: Path) -> None:
        """Take the hooks out and write the trace."""
        self._torch.stop()
        for handle in self._handles:
            handle.remove()
        self._torch.export_chrome_trace(str(trace))

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        phase = self.clock.phase("products")
        phase.__enter__()
        self._open.append(phase)

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._open.pop().__exit__(None, None, None)

    def phases(self, stats: RunStats) -> dict[str, float]:
        """Milliseconds of each phase of the run that ended with these figures; together its time in steps."""
        inside = {name: self.clock.spent_ms.get(name, 0.0) for name in ("products", "attention")}
        return {
            "plan": stats.plan_ms, **inside, "other": stats.forward_ms - sum(inside.values()),
            "sampling": stats.sample_ms, "text": stats.text_ms,
        }


def table(phases: dict[str, float], num_forwards: int) -> str:
    """The phases for people, one a line."""
    total = sum(phases.values())
    lines = [f"{'phase':10} {'ms':>10} {'ms a step':>10} {'share':>7}"]
    lines += [
        f"{name:10} {spent:10.1f} {spent / max(num_forwards, 1):10.2f} {spent / max(total, 1e-9):7.1%}"
        for name, spent in [*phases.items(), ("total", total)]
    ]
    return "\n".join(lines)
