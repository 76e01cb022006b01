"""What keys and values cost and do to the answers in each dtype, on the embedded model.

    python -m benchmarks.kv_dtype [--model M] [--rounds N]

Perplexity of benchmarks/passage.txt and the mean |Δ log-probability| of its tokens against fp32 throughout, both
through the engine; greedy tokens equal to those of fp32 before the first difference, of eight answers of 24; the median
decode step of those eight questions as a ratio, in interleaved rounds. From an audit of three of them: the neighbour
swap, which must be 0, and how far packing moved the logits, in parts of the measured noise floor (in fp32: the bound).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from statistics import fmean, median

from transformers import AutoTokenizer

from kev_engine import Engine, EngineConfig, Question, Step
from kev_engine.models.sources import resolve
from kev_engine.runtime.audit import NOISE_MARGIN

PAIRS = (
    ("float32", "float32"), ("float32", "bfloat16"), ("float32", "int8"),
    ("bfloat16", "bfloat16"), ("bfloat16", "int8"),
)
NUM_QUESTIONS, NEW_TOKENS = 8, 24
PASSAGE = (Path(__file__).parent / "passage.txt").read_text(encoding="utf-8")


@dataclass
class Figures:
    """What was measured of one pair of dtypes."""

    bytes_per_token: int
    logprobs: list[float]
    answers: list[tuple[int, ...]] = field(default_factory=list)
    decode_ms: list[float] = field(default_factory=list)
    swap: float = 0.0
    packed: float = 0.0


def score(engine: Engine, token_ids: tuple[int, ...]) -> list[float]:
    """The log-probability of each token of the passage but the first."""
    question = Question("passage", prompt_token_ids=token_ids, max_new_tokens=1, prompt_logprobs=True)
    [answer] = engine.ask([question]).answers
    return [item.logprob for item in answer.prompt_logprobs if item is not None]


def decode(engine: Engine, questions: list[Question], figures: Figures) -> None:
    """Answer the questions once: their tokens, and the milliseconds of each step that only decodes."""
    answers = {}
    for event in engine.stream(questions):
        if isinstance(event, Step) and event.plan.num_decode == event.plan.num_sequences == NUM_QUESTIONS:
            figures.decode_ms.append(event.forward_ms)
        if hasattr(event, "answer"):
            answers[event.answer.question_id] = event.answer.token_ids
    figures.answers = [answers[question.id] for question in questions]


def agreement(answers: list[tuple[int, ...]], right: list[tuple[int, ...]]) -> int:
    """How many tokens come before the first that differs, over all answers."""
    return sum(
        next((index for index, pair in enumerate(zip(mine, his, strict=False)) if pair[0] != pair[1]), len(his))
        for mine, his in zip(answers, right, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    config = EngineConfig.from_env(model=given.model)
    token_ids = tuple(AutoTokenizer.from_pretrained(resolve(config.model, config.home).path)(PASSAGE).input_ids)
    paragraphs = PASSAGE.strip().split("\n\n")
    questions = [
        Question(f"q{index}", "What happens here?", context=paragraphs[index % len(paragraphs)],
                 max_new_tokens=NEW_TOKENS, ignore_eos=True)
        for index in range(NUM_QUESTIONS)
    ]
    engines = {
        (dtype, kv_dtype): Engine(EngineConfig.from_env(
            model=given.model, dtype=dtype, kv_dtype=kv_dtype, kv_budget_bytes=256 << 20,
        ))
        for dtype, kv_dtype in PAIRS
    }
    measured = {
        pair: Figures(engine.info.bytes_per_token, score(engine, token_ids)) for pair, engine in engines.items()
    }
    for _ in range(given.rounds):
        for pair, engine in engines.items():
            decode(engine, questions, measured[pair])
    for pair, engine in engines.items():
        proofs = engine.audit(questions[:3], max_new_tokens=3).questions
        measured[pair].swap = max(proof.neighbour_max_abs for proof in proofs)
        floor = proofs[0].alone_bound / (1.0 if pair == PAIRS[0] else NOISE_MARGIN)
        measured[pair].packed = max(proof.alone_max_abs for proof in proofs) / floor
        engine.close()
    right = measured[PAIRS[0]]
    print(f"{'weights':9} {'KV':9} {'bytes/token':>11} {'perplexity':>10} {'|Δ logprob|':>11} {'tokens equal':>12} "
          f"{'decode step':>11} {'swap':>5} {'packed/floor':>12}")
    for (dtype, kv_dtype), figures in measured.items():
        moved = fmean(abs(mine - his) for mine, his in zip(figures.logprobs, right.logprobs, strict=True))
        perplexity = exp(-fmean(figures.logprobs))
        print(f"{dtype:9} {kv_dtype:9} {figures.bytes_per_token:11,} {perplexity:10.3f} {moved:11.4f} "
              f"{agreement(figures.answers, right.answers):6}/{NUM_QUESTIONS * NEW_TOKENS} "
              f"{median(figures.decode_ms) / median(right.decode_ms):10.2f}x {figures.swap:5g} "
              f"{figures.packed:12.2f}")


if __name__ == "__main__":
    main()
