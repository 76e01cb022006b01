"""One decode step of 8 rows against its matrix products alone, and where the rest of it goes.

    python -m benchmarks.step [--threads 2] [--rounds 15] [--clock wall|cpu] [--profile]

The embedded model, stories of 107 to 455 tokens (W8 after its prompts). The rounds alternate and medians are printed;
`--clock cpu` counts this thread's processor time, for a machine that is busy; it sees one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.works import W8_LENGTHS
from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.router import attach
from kev_engine.attention.base import ATTN_IMPLEMENTATION, backends, register
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.config import EMBEDDED, cache_home
from kev_engine.isolation.plan import StepPlan
from kev_engine.models.load import LoadedModel, load
from kev_engine.models.prepare import prepare
from kev_engine.models.products import Joined
from kev_engine.models.sources import resolve
from kev_engine.native.kernels import Kernels, load_kernels
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence

BLOCK, NEW_TOKENS = 16, 64


def decode_step(loaded: LoadedModel, kernels: Kernels | None) -> tuple[StepPlan, KVStorage]:
    """The plan of a step in which eight stories decode, and a storage full of small numbers."""
    facts = loaded.facts
    shape = KVShape(facts.num_layers, facts.num_kv_heads, facts.head_dim, torch.float32)
    pool = BlockPool(1 + sum(-(-(length + NEW_TOKENS) // BLOCK) for length in W8_LENGTHS), BLOCK)
    storage = KVStorage(shape, pool.num_blocks, BLOCK, torch.device("cpu"), kernels)
    for tensor in (*storage.keys, *storage.values):
        tensor.normal_()
    scheduler = Scheduler(pool, token_budget=4096)
    scheduler.submit([
        Sequence(list(range(length)), NEW_TOKENS, id=index) for index, length in enumerate(W8_LENGTHS)
    ])
    scheduled = scheduler.next_step()
    assert scheduled is not None
    scheduler.commit(scheduled)
    for sequence in scheduled.sampled:
        sequence.tokens.append(7)
    scheduled = scheduler.next_step()
    assert scheduled is not None
    return scheduled.plan, storage


def products(model: Any, rows: int) -> Callable[[], None]:
    """Every matrix product of a forward, each on `rows` rows of random numbers, and nothing else."""
    calls: list[tuple[nn.Module, torch.Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        calls.append((module, torch.randn(1, rows, inputs[0].shape[-1])))

    handles = [
        module.register_forward_pre_hook(keep) for module in model.modules() if isinstance(module, (nn.Linear, Joined))
    ]
    try:
        model.set_attn_implementation("sdpa")
        model(input_ids=torch.zeros((1, 1), dtype=torch.long), use_cache=False)
    finally:
        model.set_attn_implementation(ATTN_IMPLEMENTATION)
        for handle in handles:
            handle.remove()

    def run() -> None:
        for module, inputs in calls:
            module(inputs)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--kernels", choices=("native", "torch"), default="native")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    clock = time.perf_counter if given.clock == "wall" else time.thread_time
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    register()
    loaded = load(resolve(EMBEDDED, cache_home(os.environ)), attn_implementation=ATTN_IMPLEMENTATION)
    kernels = None if given.kernels == "torch" else load_kernels(cache_home(os.environ))
    print(dict(prepare(loaded.model, kernels)))
    plan, storage = decode_step(loaded, kernels)
    router = attach(loaded.model, AdapterPool(loaded.model, 1))
    runner = ModelRunner(
        loaded.model, backends(kernels)["segment"], router, frozenset(loaded.facts.layer_windows), torch.device("cpu")
    )
    alone = products(loaded.model, plan.num_tokens)
    whole: list[float] = []
    bare: list[float] = []
    with torch.inference_mode():
        runner.run(plan, storage)
        alone()
        for _ in range(given.rounds):
            start = clock()
            runner.run(plan, storage)
            middle = clock()
            alone()
            bare.append((clock() - middle) * 1e3)
            whole.append((middle - start) * 1e3)
        if given.profile:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                runner.run(plan, storage)
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=40))
            print(sum(event.count for event in profile.key_averages()), "operators")
    ratio = median(step / product for step, product in zip(whole, bare, strict=True))
    print(f"decode step, {plan.num_tokens} rows: {median(whole):.1f} ms (best {min(whole):.1f})")
    print(f"its products alone: {median(bare):.1f} ms (best {min(bare):.1f}); step by products {ratio:.2f}×")


if __name__ == "__main__":
    main()
