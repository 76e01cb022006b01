"""What a run needs beside its weights and its keys and values, on the embedded model.

    python -m benchmarks.memory [--dtype float32]

The most memory the process ever held while it loaded and answered W8, less what it held with everything imported, less
weights, less the most KV: by the weights' size. And the bytes of what stands for the mask, the arrays of a step's plan,
for prompts of more and more tokens, beside those of a dense mask of float32.
"""

from __future__ import annotations

import argparse
import resource
from dataclasses import fields
from math import log2
from pathlib import Path

import numpy as np

from benchmarks.works import W8_LENGTHS
from kev_engine import Engine, EngineConfig, Question
from kev_engine.cache.blocks import BlockPool
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence

NUM_SEQUENCES, BLOCK = 8, 16
MEBI = 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def plan_bytes(num_tokens: int) -> int:
    """Bytes of the arrays of the plan that prefills eight prompts of `num_tokens` together."""
    length = num_tokens // NUM_SEQUENCES
    pool = BlockPool(1 + NUM_SEQUENCES * -(-(length + 1) // BLOCK), BLOCK)
    scheduler = Scheduler(pool, token_budget=num_tokens)
    scheduler.submit([Sequence(list(range(length)), 1, id=index) for index in range(NUM_SEQUENCES)])
    scheduled = scheduler.next_step()
    assert scheduled is not None
    assert scheduled.plan.num_tokens == num_tokens
    arrays = [getattr(scheduled.plan, field.name) for field in fields(scheduled.plan)]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    from transformers import AutoTokenizer  # noqa: F401 – before memory is counted
    from transformers.models.llama import modeling_llama  # noqa: F401

    imported = resident()
    engine = Engine(EngineConfig.from_env(dtype=given.dtype, kv_budget_bytes=128 * MEBI, prefix_cache_bytes=0))
    questions = [
        Question(str(index), prompt_token_ids=tuple(100 + (7 * place + index) % 4000 for place in range(length)),
                 max_new_tokens=64, ignore_eos=True)
        for index, length in enumerate(W8_LENGTHS)
    ]
    stats = engine.ask(questions).stats
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    weights = engine.info.weight_bytes
    above = peak - imported - weights - stats.kv_bytes_peak
    for what, count in (("imported", imported), ("weights", weights), ("keys and values", stats.kv_bytes_peak),
                        ("peak", peak), ("above all of these", above)):
        print(f"{what:20} {count / MEBI:8.0f} MiB")
    print(f"above by weights: {above / weights:.0%}")
    engine.close()
    sizes = {count: plan_bytes(count) for count in (1024, 2048, 4096, 8192, 16384)}
    for count, size in sizes.items():
        print(f"{count:6} tokens: plan {size:10,} bytes, dense mask {4 * count * count:14,}")
    print(f"exponent of the plan: {log2(sizes[16384] / sizes[1024]) / 4:.2f}")


if __name__ == "__main__":
    main()
