"""How long the embedded model takes to start from its converted files, each time in a process of its own.

    python -m benchmarks.load [--rounds 5]

Imports, the weights, the prepared modules and the first forward (a prompt of eight tokens); the processor time of it
all, for a machine that is busy; the most memory the process held, by the weights' size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median

PROGRAM = """
import json, resource, time
start = time.perf_counter()
from kev_engine import Engine, EngineConfig, Question
imported = time.perf_counter()
engine = Engine(EngineConfig.from_env(kv_budget_bytes=64 << 20))
loaded = time.perf_counter()
engine.ask([Question("q", prompt_token_ids=tuple(range(5, 13)), max_new_tokens=1)])
answered = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"import": imported - start, "engine": loaded - imported, "first answer": answered - loaded,
                  "together": answered - start, "cpu": time.process_time(), "peak": peak / engine.info.weight_bytes}))
engine.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = []
    for _ in range(parser.parse_args().rounds):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        rounds.append(json.loads(done.stdout))
    print("| import, s | engine, s | first answer, s | together, s | processor time, s | peak memory by the weights |")
    print("|---|---|---|---|---|---|")
    keys = ("import", "engine", "first answer", "together", "cpu", "peak")
    cells = [median(each[key] for each in rounds) for key in keys]
    print("| " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
