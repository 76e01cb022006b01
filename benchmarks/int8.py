"""int8 weights against fp32: speed on W8, quality on a text, isolation by an audit.

    python -m benchmarks.int8 [--rounds 3] [--threads 2] [--tokens 20000] [--quality]

The rounds of the two alternate; the ratio is the median over the rounds. Quality: perplexity and how often the
likeliest token is the same, over the first `--tokens` tokens of the language reference that comes with Python
(pydoc_data.topics), in windows of 1,000; `--quality` measures nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from math import exp
from pydoc_data.topics import topics
from statistics import median
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer

from benchmarks.contestants import Kev
from benchmarks.works import WORKS, Cutter
from kev_engine import Engine, EngineConfig
from kev_engine.config import EMBEDDED, cache_home
from kev_engine.models.int8 import use_int8
from kev_engine.models.load import load
from kev_engine.models.prepare import prepare
from kev_engine.models.sources import resolve
from kev_engine.native.kernels import load_kernels

WINDOW = 1000


def prepared(is_int8: bool) -> Any:
    """The embedded model as the engine has it, but with transformers' attention."""
    loaded = load(resolve(EMBEDDED, cache_home(os.environ)), attn_implementation="sdpa")
    kernels = load_kernels(cache_home(os.environ))
    prepare(loaded.model, kernels)
    if is_int8:
        use_int8(loaded.model, kernels)
    return loaded.model


def quality(tokenizer: Any, num_tokens: int) -> None:
    """Print perplexities and agreement."""
    exact, rounded = prepared(is_int8=False), prepared(is_int8=True)
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = torch.tensor(tokenizer(text[: 8 * num_tokens]).input_ids[:num_tokens])
    losses: dict[str, list[float]] = {"fp32": [], "int8": []}
    agreed = counted = 0
    with torch.inference_mode():
        for window in ids.split(WINDOW):
            if len(window) < 2:
                continue
            logits = {"fp32": exact(window[None]).logits[0, :-1], "int8": rounded(window[None]).logits[0, :-1]}
            for name, found in logits.items():
                losses[name] += cross_entropy(found, window[1:], reduction="none").tolist()
            agreed += int((logits["fp32"].argmax(-1) == logits["int8"].argmax(-1)).sum())
            counted += len(window) - 1
    perplexity = {name: exp(sum(values) / len(values)) for name, values in losses.items()}
    print(f"text: {len(ids):,} tokens, sha256 of its ids {hashlib.sha256(ids.numpy().tobytes()).hexdigest()[:12]}")
    print(f"perplexity: fp32 {perplexity['fp32']:.4f}, int8 {perplexity['int8']:.4f}, "
          f"ratio {perplexity['int8'] / perplexity['fp32']:.4f}")
    print(f"top-1 agreement: {agreed / counted:.2%} of {counted:,}")


def speed(tokenizer: Any, rounds: int, threads: int) -> None:
    """Print the seconds of W8 with both and their ratio.

    Each turn has an engine of its own, warmed up by the same work: two at once would share the cores between their
    OpenMP threads.
    """
    seconds: dict[str, list[float]] = {"float32": [], "int8": []}
    sizes: dict[str, int] = {}
    for number in range(rounds):
        work = WORKS["W8"](Cutter(tokenizer, number))
        for dtype in [*seconds] if number % 2 == 0 else [*seconds][::-1]:
            kev = Kev(threads, {}, dtype)
            kev.ask(work)
            start = time.perf_counter()
            kev.ask(work)
            seconds[dtype].append(time.perf_counter() - start)
            sizes[dtype] = kev.engine.info.weight_bytes
            kev.engine.close()
    ratios = [slow / fast for slow, fast in zip(seconds["float32"], seconds["int8"], strict=True)]
    print(f"W8: fp32 {median(seconds['float32']):.2f} s, int8 {median(seconds['int8']):.2f} s, "
          f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)
    print(f"weights: {sizes['float32']:,} bytes and {sizes['int8']:,}")


def isolation(tokenizer: Any) -> None:
    """Print what the neighbour swap moved."""
    work = WORKS["W8"](Cutter(tokenizer, 0))
    with Engine(EngineConfig.from_env(dtype="int8", kv_budget_bytes=256 << 20)) as engine:
        proofs = engine.audit(work.questions[:4], max_new_tokens=3).questions
    print(f"neighbour swap {max(proof.neighbour_max_abs for proof in proofs):g}, poison "
          f"{max(proof.poison_max_abs for proof in proofs):g}, packed against alone "
          f"{max(proof.alone_max_abs for proof in proofs):.2g} (bound {proofs[0].alone_bound:.2g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--quality", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    tokenizer = AutoTokenizer.from_pretrained(resolve(EMBEDDED, cache_home(os.environ)).path)
    if not given.quality:
        speed(tokenizer, given.rounds, given.threads)
        isolation(tokenizer)
    quality(tokenizer, given.tokens)


if __name__ == "__main__":
    main()
