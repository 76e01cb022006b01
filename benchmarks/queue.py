"""Five hundred questions through KV memory that holds eight at a time, on the embedded model.

    python -m benchmarks.queue [--questions N] [--at-a-time N] [--new-tokens N] [--threads N]

Prints whether all were answered in the order asked, forwards and their rows, queue times, and the resident memory after
every tenth of the answers, whose last figures must not rise.
"""

from __future__ import annotations

import argparse
import resource

import numpy as np

from kev_engine import Engine, EngineConfig, Finished, Question, RunFinished

PROMPT_TOKENS = 40


def resident_mib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() >> 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--at-a-time", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=9)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    asked = [
        Question(f"q{index}", prompt_token_ids=tuple(row), max_new_tokens=given.new_tokens, ignore_eos=True)
        for index, row in enumerate(rng.integers(1000, 40000, (given.questions, PROMPT_TOKENS)).tolist())
    ]
    bytes_per_token = 2 * 30 * 3 * 64 * 4
    blocks = -(-(PROMPT_TOKENS + given.new_tokens - 1) // 16) * given.at_a_time
    config = EngineConfig.from_env(
        threads=given.threads, kv_budget_bytes=blocks * 16 * bytes_per_token, max_questions=given.questions,
        max_waiting=given.questions,
    )
    with Engine(config) as engine:
        assert engine.info.bytes_per_token == bytes_per_token, "the sizes above are those of the embedded model"
        answers, resident, stats = [], [], None
        for event in engine.stream(asked):
            if isinstance(event, Finished):
                answers.append(event.answer)
                if len(answers) % (given.questions // 10) == 0:
                    resident.append(resident_mib())
            elif isinstance(event, RunFinished):
                stats = event.stats
        leaked = engine._pool.num_used
    assert stats is not None
    in_order = [answer.question_id for answer in answers] == [question.id for question in asked]
    waits = [answer.queue_ms for answer in answers]
    print(f"{len(answers)} answered, in the order asked: {in_order}, blocks left in use: {leaked}")
    print(f"{len(stats.tokens_per_forward)} forwards in {stats.seconds:.1f} s, at most"
          f" {max(stats.sequences_per_forward)} sequences each; planning {stats.plan_ms / stats.seconds / 10:.2f} %")
    print(f"queue: median {np.median(waits) / 1e3:.1f} s, longest {max(waits) / 1e3:.1f} s")
    print(f"resident MiB at each tenth: {resident}; peak"
          f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}")


if __name__ == "__main__":
    main()
