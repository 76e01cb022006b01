"""The flash backend on a CUDA device: first whether it is right, then what it costs beside the others.

    python -m benchmarks.gpu [--model M] [--rounds N]

1. Every step of random trees of stories through flash and through the dense oracle, on the same keys: the largest
   difference, in units in the last place of numbers up to 4. Above 2 the run ends with exit status 1.
2. The audit of a run of the model on flash.
3. One layer's attention, in ms, the median of interleaved rounds: decode rows and prompts, of stories of 512 and 4,096
   tokens, through flash's kvcache call, its varlen call, segment, and dense.
4. Whole runs of the model: tokens a second through each backend.

Needs a CUDA device and requirements-gpu.txt; says so and ends with exit status 1 where they are missing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch

from kev_engine import Engine, EngineConfig, Question
from kev_engine.attention.base import AttentionBackend, LayerFacts, backends
from kev_engine.attention.dense import DenseBackend
from kev_engine.attention.flash import PAGE_TOKENS, FlashBackend
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation.plan import Chunk, StepPlan
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence

LAST_PLACE = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""One unit in the last place of a number between 2 and 4."""
WINDOWS, SOFTCAPS, GROUPS = (None, 100, 1000), (None, 20.0), (1, 4)


def storage_of(shape: KVShape, num_blocks: int, device: torch.device, seed: int) -> KVStorage:
    """Storage whose every slot holds random numbers."""
    storage = KVStorage(shape, num_blocks, PAGE_TOKENS, device)
    generator = torch.Generator(device).manual_seed(seed)
    for tensor in storage.tensors:
        tensor.normal_(generator=generator)
    return storage


def tree_plans(seed: int, scale: int, pool: BlockPool) -> Iterator[StepPlan]:
    """The steps of a random tree of stories of up to `scale` tokens: chunks, a context with a tail, decode rows."""
    rng = np.random.default_rng(seed)
    scheduler = Scheduler(pool, token_budget=scale)
    context = Sequence([0] * int(rng.integers(1, scale)), 0)
    readers = [Sequence([0] * (context.num_prompt + int(rng.integers(1, scale))), 3, parent=context) for _ in range(2)]
    strangers = [Sequence([0] * int(rng.integers(1, scale)), int(rng.integers(1, 5))) for _ in range(3)]
    scheduler.submit([context, *readers, *strangers])
    while (scheduled := scheduler.next_step()) is not None:
        yield scheduled.plan
        scheduler.commit(scheduled)
        for sequence in scheduled.sampled:
            sequence.tokens.append(0)
            if sequence.num_output >= sequence.max_new_tokens:
                scheduler.finish(sequence)


def worst_difference(
    backend: AttentionBackend, device: torch.device, shape: KVShape, layer: LayerFacts, groups: int, scale: int = 700,
) -> float:
    """The largest |backend − oracle| over all outputs of one tree, both on the same keys."""
    pool = BlockPool(64, PAGE_TOKENS)
    storage = storage_of(shape, pool.num_blocks, device, seed=groups)
    generator = torch.Generator(device).manual_seed(1)
    worst = 0.0
    for plan in tree_plans(groups, scale, pool):
        size = (1, shape.num_kv_heads * groups, plan.num_tokens, shape.head_dim)
        query = torch.randn(size, generator=generator, device=device).to(shape.dtype)
        found, right = (attend(way, plan, storage, layer, query)() for way in (backend, DenseBackend()))
        worst = max(worst, float((found.float() - right.float()).abs().max()))
    return worst


def attend(
    backend: AttentionBackend, plan: StepPlan, storage: KVStorage, layer: LayerFacts, query: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """One layer's call on this step, its preparation done."""
    state = backend.prepare(plan, storage, frozenset({layer.window}))
    return partial(backend.attend, layer, query, storage, state)


def check_kernels(device: torch.device) -> bool:
    """Whether every combination stays within two units in the last place; prints the worst of each dtype."""
    is_right = True
    for dtype, unit in LAST_PLACE.items():
        shape = KVShape(1, 2, 64, dtype)
        worst = max(
            worst_difference(FlashBackend(), device, shape, LayerFacts(0, 0.125, window, softcap), groups)
            for window, softcap, groups in product(WINDOWS, SOFTCAPS, GROUPS)
        )
        is_right &= worst <= 2 * unit
        print(f"flash against dense, {dtype}: {worst / unit:.2f} units in the last place")
    return is_right


def questions(count: int, num_words: int, new_tokens: int) -> list[Question]:
    return [
        Question(f"q{index}", "What is said here?", context="The river runs past the mill. " * (num_words // 6 + index),
                 max_new_tokens=new_tokens, ignore_eos=True)
        for index in range(count)
    ]


def engine(model: str, backend: str) -> Engine:
    return Engine(EngineConfig.from_env(model=model, backend=backend, device="cuda", dtype="bfloat16"))


def check_engine(model: str) -> bool:
    """Whether the audit of four questions on flash finds them isolated."""
    with engine(model, "flash") as running:
        verdict = running.audit(questions(4, 60, 8))
    worst = {name: max(getattr(proof, f"{name}_max_abs") for proof in verdict.questions)
             for name in ("alone", "neighbour", "poison")}
    print(f"audit on flash: {'isolated' if verdict.isolated else 'NOT isolated'}, {worst}, "
          f"bound {verdict.questions[0].alone_bound:.3g}")
    return verdict.isolated


def step_plan(num_sequences: int, num_keys: int, num_new: int) -> StepPlan:
    """One step of equal sequences, each with `num_new` new tokens of `num_keys`, each in blocks of its own."""
    pages = -(-num_keys // PAGE_TOKENS)
    tables = 1 + np.arange(num_sequences * pages, dtype=np.int32).reshape(num_sequences, pages)
    positions = np.arange(num_keys - num_new, num_keys)
    slots = tables[:, positions // PAGE_TOKENS].astype(np.int64) * PAGE_TOKENS + positions % PAGE_TOKENS
    count = num_sequences * num_new
    return StepPlan(
        chunks=tuple(Chunk(index, num_keys - num_new, num_new) for index in range(num_sequences)),
        input_ids=np.zeros(count, np.int64), position_ids=np.tile(positions, num_sequences),
        segment_ids=np.repeat(np.arange(num_sequences, dtype=np.int32), num_new),
        adapter_ids=np.zeros(count, np.int32), slot_mapping=slots.flatten(), block_tables=tables,
        sample_rows=np.arange(num_new - 1, count, num_new), block_size=PAGE_TOKENS,
    )


def timed(ways: dict[str, Callable[[], Any]], rounds: int, calls: int = 20) -> dict[str, float]:
    """Milliseconds a call of each way, the median of interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                way()
            torch.cuda.synchronize()
            taken[name].append((time.perf_counter() - start) * 1e3 / calls)
    return {name: median(times) for name, times in taken.items()}


def time_kernels(device: torch.device, rounds: int) -> None:
    """The table of one layer's attention: 32 query and 8 key heads of 128, bf16."""
    shape, layer = KVShape(1, 8, 128, torch.bfloat16), LayerFacts(0, 128**-0.5)
    for num_sequences, num_keys, num_new in ((8, 512, 1), (64, 512, 1), (8, 4096, 1), (64, 4096, 1), (4, 1024, 1024)):
        plan = step_plan(num_sequences, num_keys, num_new)
        storage = storage_of(shape, int(plan.block_tables.max()) + 1, device, seed=0)
        query = torch.randn(1, 32, plan.num_tokens, 128, device=device, dtype=torch.bfloat16)
        flash = FlashBackend()
        state = flash.prepare(plan, storage, frozenset({None}))
        varlen = replace(state, is_decode=False)
        ways = {"flash varlen": partial(flash.attend, layer, query, storage, varlen)}
        if state.is_decode:
            ways["flash kvcache"] = partial(flash.attend, layer, query, storage, state)
        ways["segment"] = attend(backends()["segment"], plan, storage, layer, query)
        if plan.num_tokens * num_sequences * num_keys < 2**24:
            ways["dense"] = attend(DenseBackend(), plan, storage, layer, query)
        figures = " · ".join(f"{name} {ms:.3f}" for name, ms in timed(ways, rounds).items())
        print(f"{num_sequences} × {num_keys} keys, {num_new} new: {figures} ms a layer")


def time_engine(model: str, rounds: int) -> None:
    """Tokens a second of 32 questions with 64 new tokens each, through flash and segment, in turns."""
    asked = questions(32, 200, 64)
    running = {name: engine(model, name) for name in ("flash", "segment")}
    rates: dict[str, list[float]] = {name: [] for name in running}
    for number in range(rounds + 1):
        for name, one in running.items():
            run = one.ask(asked)
            if number:
                rates[name].append(sum(answer.output_tokens for answer in run.answers) / run.stats.seconds)
    for name, one in running.items():
        print(f"{name}: {median(rates[name]):.0f} tokens/s, {one.info.backend_reason}")
        one.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu needs a CUDA device and torch built for it, and this machine has none.")
    device = torch.device("cuda")
    refusal = FlashBackend().unsupported(frozenset(), device, KVShape(1, 2, 64, torch.bfloat16))
    if refusal is not None:
        raise SystemExit(f"benchmarks.gpu cannot run: {refusal}.")
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    with torch.inference_mode():
        if not check_kernels(device) or not check_engine(given.model):
            return 1
        time_kernels(device, given.rounds)
    time_engine(given.model, given.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
