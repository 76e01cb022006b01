"""What planning costs beside the forward: 64 running sequences of 512 tokens, and one step of long prompts.

    python benchmarks/planning.py [--sequences N] [--tokens N] [--steps N] [--threads N]

Medians in ms (with one thread of CPU time), taken inside a working engine on the embedded model. Planning is what is
done for a step beside running the model and drawing: the scheduler's step and commit, the backend's state (tables,
masks, readers), the record with the KV gauge. (benchmarks/adapters.py has the grouping of adapters.) The bar: at most
2 % of the whole decode step.

Prompts are planned and not computed: their keys are set to zero, which changes nothing in what a decode step costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kev_engine import Engine, EngineConfig, Question, StepPlan
from kev_engine.cache.storage import KVStorage
from kev_engine.runtime.run import ActiveRun


class Clock:
    """Milliseconds spent in some methods, call by call."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.taken: dict[str, list[float]] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        taken = self.taken.setdefault(name, [])

        def run(*arguments: Any, **named: Any) -> Any:
            start = self.now()
            try:
                return call(*arguments, **named)
            finally:
                taken.append((self.now() - start) * 1e3)

        return run


class TimedRunner:
    """The engine's runner with its backend's `prepare` timed; a step of prompts is planned only."""

    def __init__(self, inner: Any, clock: Clock, vocab_size: int) -> None:
        self.inner = inner
        self.vocab_size = vocab_size
        self.prepare = clock.timed("prepare", inner.backend.prepare)

    def run(self, plan: StepPlan, storage: KVStorage) -> torch.Tensor:
        state = self.prepare(plan, storage, self.inner.windows)
        if plan.num_tokens > plan.num_sequences:
            storage.fill_slots(torch.from_numpy(plan.slot_mapping), 0.0)
            return torch.zeros(len(plan.sample_rows), self.vocab_size)
        return replace(self.inner, backend=Prepared(self.inner.backend, state)).run(plan, storage)


class Prepared:
    """A backend whose state for the step is there already."""

    def __init__(self, inner: Any, state: Any) -> None:
        self.name, self.capabilities, self.attend = inner.name, inner.capabilities, inner.attend
        self.prepare = lambda plan, storage, windows: state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    prompts = rng.integers(1000, 40000, (given.sequences, given.tokens)).tolist()
    asked = [
        Question(f"q{index}", prompt_token_ids=tuple(row), max_new_tokens=given.steps + 1, ignore_eos=True)
        for index, row in enumerate(prompts)
    ]
    config = EngineConfig.from_env(threads=given.threads, kv_budget_bytes=3 << 30)
    clock = Clock(time.thread_time if given.threads == 1 else time.perf_counter)
    with Engine(config) as engine:
        worker, scheduler = engine._worker, engine._worker.scheduler
        worker.runner = TimedRunner(worker.runner, clock, engine.info.vocab_size)
        scheduler.next_step = clock.timed("next_step", scheduler.next_step)
        scheduler.commit = clock.timed("commit", scheduler.commit)
        ActiveRun.record = clock.timed("record", ActiveRun.record)
        worker._step = clock.timed("step", worker._step)
        stats = engine.ask(asked).stats
        info = engine.info
    prefills = sum(count > given.sequences for count in stats.tokens_per_forward)
    print(f"{info.model}, {info.backend}, {info.threads} threads, {given.sequences} sequences of {given.tokens} tokens")
    step = float(np.median(clock.taken["step"][prefills:]))
    total = 0.0
    for name in ("next_step", "prepare", "commit", "record"):
        prefill, decode = (float(np.median(part)) for part in np.split(np.array(clock.taken[name]), [prefills]))
        total += decode
        print(f"{name:12} decode {decode:7.3f} ms   prefill of {stats.tokens_per_forward[0]} tokens {prefill:7.3f} ms")
    print(f"planning     {total:.2f} of {step:.1f} ms a decode step: {total / step:.2%}")


if __name__ == "__main__":
    main()
