"""How long questions that decode wait for their next token while a long prompt prefills beside them.

    python benchmarks/gaps.py [--rounds N] [--prompt TOKENS] [--threads N]

Eight questions decode on the embedded model; then a question of 1,500 tokens arrives. For each cap on prompt tokens a
step (`prefill_chunk`), interleaved over the rounds: the undisturbed median gap between tokens, the 95th percentile and
the worst gap from the arrival to the long question's first token, both also as multiples of that median, and the long
question's TTFT.
"""

from __future__ import annotations

import argparse
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from kev_engine import Engine, EngineConfig, Finished, Question, TextDelta

CAPS = (4096, 256, 128, 64, 32)
NUM_SHORT, SHORT_TOKENS = 8, 60
NEW_TOKENS = 512
"""More than a short question draws while the long prompt enters, and few enough that all fit into memory beside it."""
LEAD_TOKENS = 12
"""Tokens that each short question has drawn, more or less, when the long one arrives."""


@dataclass
class Times:
    """Seconds of one setting, over all rounds."""

    before: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)


def measure(engine: Engine, cap: int, prompt_tokens: int, seed: int, times: Times) -> None:
    """One round under one cap: gaps of the first short question (all of them draw in every step)."""
    engine._worker.scheduler.prefill_chunk = cap
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1000, 40000, (NUM_SHORT, SHORT_TOKENS)).tolist()
    short = [
        Question(f"s{index}", prompt_token_ids=tuple(row), max_new_tokens=NEW_TOKENS, ignore_eos=True)
        for index, row in enumerate(tokens)
    ]
    long = Question("long", prompt_token_ids=tuple(rng.integers(1000, 40000, prompt_tokens).tolist()), max_new_tokens=1)
    arrived = threading.Event()
    moments: dict[str, float] = {}

    def ask_long() -> None:
        arrived.wait()
        moments["start"] = time.perf_counter()
        for event in engine.stream([long]):
            if isinstance(event, Finished):
                moments["end"] = time.perf_counter()

    thread = threading.Thread(target=ask_long)
    thread.start()
    stream = engine.stream(short)
    drawn: list[float] = []
    for event in stream:
        if isinstance(event, TextDelta) and event.question_id == "s0":
            drawn.append(time.perf_counter())
            if len(drawn) == LEAD_TOKENS:
                arrived.set()
            if "end" in moments and drawn[-1] > moments["end"]:
                break
    stream.close()
    thread.join()
    ends, gaps = np.array(drawn[1:]), np.diff(drawn)
    times.before += gaps[ends <= moments["start"]].tolist()
    times.during += gaps[(ends > moments["start"]) & (np.array(drawn[:-1]) < moments["end"])].tolist()
    times.ttft.append(moments["end"] - moments["start"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    results = {cap: Times() for cap in CAPS}
    config = EngineConfig.from_env(threads=given.threads, prefix_cache_bytes=0, kv_budget_bytes=1 << 30)
    with Engine(config) as engine:
        print(f"{engine.info.model}, {engine.info.backend}, {engine.info.threads} threads, {given.prompt} tokens")
        measure(engine, CAPS[-1], given.prompt, 0, Times())
        for seed in range(given.rounds):
            for cap, times in results.items():
                measure(engine, cap, given.prompt, seed, times)
    print(f"{'cap':>6} {'median':>8} {'p95':>8} {'worst':>8} {'p95/med':>8} {'worst/med':>10} {'TTFT':>8}")
    for cap, times in results.items():
        median, p95, worst = np.median(times.before), np.percentile(times.during, 95), max(times.during)
        print(f"{cap:6} {median * 1e3:6.0f}ms {p95 * 1e3:6.0f}ms {worst * 1e3:6.0f}ms {p95 / median:8.1f}"
              f" {worst / median:10.1f} {np.median(times.ttft):7.1f}s")


if __name__ == "__main__":
    main()
