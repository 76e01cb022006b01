"""What a diagnosis costs, and what the most common packing mistake does to the embedded model's logits.

    python benchmarks/doctor.py [--rounds 3] [--no-model]

Seconds of one core (CPU time, so that a busy machine does not show), the least of interleaved rounds; the start is a
process of its own, from the first import to the verdict.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
# Not the folder of this file: a neighbour there has the name of a module of the standard library.
sys.path[0] = str(ROOT)

from kev_engine.doctor.report import diagnose  # noqa: E402

SIZE, LONG = 8192, 32768
PROMPTS = ("The capital of France is", "Water boils at a temperature of one hundred degrees, because")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-model", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {}
    batches = described()
    for _ in range(options.rounds):
        taken.setdefault("import and verdict, new process", []).append(start())
        for name, batch in batches.items():
            taken.setdefault(name, []).append(timed(lambda batch=batch: diagnose(batch)))
    for name, seconds in taken.items():
        print(f"{name:44} {min(seconds):6.2f} s")
    if not options.no_model:
        for name, value in packing_mistakes().items():
            print(f"{name:44} {value:9.2g} max |Δlogit|")


def described() -> dict[str, dict[str, Any]]:
    """The batches, by what they are."""
    lengths = [LONG // 64] * 64
    restarted = [place for length in lengths for place in range(length)]
    tril = np.tril(np.ones((SIZE, SIZE), dtype=bool))
    noise = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32) < 0.5
    return {
        f"{LONG} tokens, 64 segments, positions": {"lengths": lengths, "position_ids": restarted, "consumer": "hf"},
        f"{LONG} tokens, all-ones mask beside them": {
            "lengths": lengths, "position_ids": restarted, "attention_mask": {"ones": [1, LONG]}, "consumer": "hf"},
        f"dense boolean {SIZE} × {SIZE}": {"attention_mask": tril, "consumer": "sdpa"},
        f"dense float32 {SIZE} × {SIZE}": {
            "attention_mask": np.where(tril, 0, np.finfo(np.float32).min).astype(np.float32), "consumer": "sdpa"},
        f"random boolean {SIZE} × {SIZE}": {"attention_mask": noise, "consumer": "sdpa"},
    }


def timed(action: Callable[[], object]) -> float:
    begun = time.process_time()
    action()
    return time.process_time() - begun


def start() -> float:
    program = ("from kev_engine.doctor import diagnose\n"
               "diagnose({'lengths': [5, 3, 4], 'attention_mask': {'ones': [1, 12]}, 'consumer': 'hf'})")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def packing_mistakes() -> dict[str, float]:
    """How far the last logits of two packed prompts lie from those of each alone, by how the packing was said."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kev_engine.config import cache_home
    from kev_engine.isolation.layout import pack
    from kev_engine.isolation.mask import dense
    from kev_engine.models.embedded import embedded
    from kev_engine.models.progress import silent

    path = embedded(cache_home(os.environ), silent).path
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa").eval()
    ids = [tokenizer(text, return_tensors="pt").input_ids for text in PROMPTS]
    layout = pack([part.shape[1] for part in ids])
    row = torch.cat(ids, dim=1)
    restarted = torch.tensor(layout.position_ids)[None]
    allowed = torch.tensor(dense(layout))[None, None]

    @torch.no_grad()
    def logits(**batch: Any) -> torch.Tensor:
        return model(use_cache=False, **batch).logits[0]

    alone = torch.cat([logits(input_ids=part) for part in ids])
    ways: dict[str, dict[str, Any]] = {
        "restarted positions, no mask": {"position_ids": restarted},
        "restarted positions, all-ones 2-D mask": {"position_ids": restarted, "attention_mask": torch.ones_like(row)},
        "running positions, right 4-D mask": {"attention_mask": allowed},
        "4-D mask of 0 and 1 as floats": {"position_ids": restarted, "attention_mask": allowed.float()},
    }
    return {name: float((logits(input_ids=row, **batch) - alone).abs().max()) for name, batch in ways.items()}


if __name__ == "__main__":
    main()
