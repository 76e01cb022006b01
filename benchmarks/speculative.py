"""What guessed rows cost, and what guessing saves, on the embedded model.

    python benchmarks/speculative.py

First a decode step of 1 and 4 sequences with and without guesses (the share of a step that one more row costs is
ROW_COST in runtime/speculative.py), then whole runs: one and four questions that copy a text, and one that does not.
Everything is interleaved in one process; ratios are of medians of CPU time on one thread.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVStorage
from kev_engine.config import EngineConfig
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence
from kev_engine.schema import Question

DRAFT = 8
STORY, ROUNDS, RUNS = 200, 8, 2
ITEMS = (
    "The invoice 4471 was paid on 3 May by the Harbour Office in Rotterdam.",
    "Parcel A-209 left the mill at Aral on 12 June and reached the coast two days later.",
    "The committee met in room 17 and approved the budget of 82,500 crowns.",
)


def step_cost(engine: Engine, num_sequences: int) -> None:
    """Print what a decode step costs by the number of guesses that each of its sequences brings."""
    pool = BlockPool(num_sequences * 40 + 1, 16)
    storage = KVStorage(engine._shape, pool.num_blocks, 16, engine._runner.device)
    scheduler = Scheduler(pool, 4096)
    sequences = [Sequence(list(range(100, 100 + STORY)), 400, id=index) for index in range(num_sequences)]
    scheduler.submit(sequences)
    counts = (0, 1, 2, 4, 8)
    taken: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(ROUNDS * len(counts) + 1):
        count = counts[turn % len(counts)]
        for sequence in sequences:
            sequence.draft = [7] * count if turn else []
        scheduled = scheduler.next_step()
        assert scheduled is not None
        start = time.process_time()
        engine._runner.run(scheduled.plan, storage)
        if turn:
            taken[count].append((time.process_time() - start) * 1e3)
        scheduler.commit(scheduled)
        for sequence in sequences:
            sequence.append(9)
    plain = median(taken[0])
    for count in counts[1:]:
        ratio = median(taken[count]) / plain
        print(f"{num_sequences} sequences, {count} guesses each: {ratio:5.2f} of a plain step, "
              f"{(ratio - 1) / count:.3f} a guess")


def copying(count: int) -> list[Question]:
    text = "\n".join(ITEMS)
    return [
        Question(f"q{index}", f"Repeat the text above word for word.\n\n{text}", context=text, max_new_tokens=80)
        for index in range(count)
    ]


def runs(engine: Engine, name: str, plain: list[Question]) -> None:
    """Time and forwards of a run with and without drafts; the answers must be equal."""
    drafted = [replace(question, draft=DRAFT) for question in plain]
    seconds: dict[str, list[float]] = {"plain": [], "drafted": []}
    for _ in range(RUNS):
        for way, asked in (("plain", plain), ("drafted", drafted)):
            start = time.process_time()
            run = engine.ask(asked)
            seconds[way].append(time.process_time() - start)
            if way == "plain":
                right = [answer.token_ids for answer in run.answers]
                forwards = len(run.stats.tokens_per_forward)
    assert [answer.token_ids for answer in run.answers] == right, "a draft changed an answer"
    stats = run.stats
    print(f"{name}: {forwards} forwards became {len(stats.tokens_per_forward)}, {stats.draft_accepted} of "
          f"{stats.draft_proposed} guesses right, {median(seconds['plain']) / median(seconds['drafted']):.2f} times as "
          "fast")


def main() -> None:
    with Engine(EngineConfig(threads=1)) as engine:
        for num_sequences in (1, 4):
            step_cost(engine, num_sequences)
        runs(engine, "1 question that copies", copying(1))
        runs(engine, "4 questions that copy", copying(4))
        prose = [Question("p", "Tell me a story about a lighthouse keeper and a storm.", max_new_tokens=80)]
        runs(engine, "1 question that does not", prose)


if __name__ == "__main__":
    main()
