"""What adapters cost: the ways to route them, side by side over the matrix products of the embedded model.

    python benchmarks/adapters.py [--threads 2] [--rounds 20] [--whole]

The first table's model is all 210 Linear modules of SmolLM2-135M (hidden 576, intermediate 1536, 30 layers, 9 heads,
3 KV heads of 64) and nothing else, so a ratio is an upper bound of what a whole forward shows. Rows: 8 decode rows, and
a prefill of 2,074 tokens in 8 prompts. The rounds of all strategies alternate; the best step of each counts, with
one thread in CPU time. All must give the same numbers first.

With --whole, a second table has whole runs of the embedded model: 8 questions of 107 to 455 prompt tokens, 64 new
tokens each, under the base and under 4 rank-8 adapters, and PEFT's own `adapter_names` on the same prompts, padded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from torch.nn.functional import grouped_mm

from kev_engine.adapters.pool import AdapterPool
from kev_engine.adapters.router import LONG_RUN, Router
from kev_engine.adapters.weights import AdapterWeights, LoraPair
from kev_engine.config import EMBEDDED, EngineConfig, cache_home
from kev_engine.models.load import load
from kev_engine.models.sources import resolve
from kev_engine.native.kernels import load_kernels
from kev_engine.runtime.engine import Engine
from kev_engine.schema import Question, SamplingParams

HIDDEN, INTERMEDIATE, KEY_VALUE, LAYERS, RANK = 576, 1536, 192, 30, 8
SHAPES = {
    "q_proj": (HIDDEN, HIDDEN), "k_proj": (HIDDEN, KEY_VALUE), "v_proj": (HIDDEN, KEY_VALUE),
    "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (HIDDEN, INTERMEDIATE), "up_proj": (HIDDEN, INTERMEDIATE), "down_proj": (INTERMEDIATE, HIDDEN),
}
STEPS, NEW_TOKENS = 3, 64
GROUPED, KERNEL = "grouped_mm", "by length, decode rows by the kernel (used)"
PROMPTS = (107, 148, 190, 232, 270, 312, 360, 455)
ROWS = {"decode, 8 rows": (1,) * 8, "prefill, 2,074 tokens": PROMPTS}
MIXES = {"4 adapters": (1, 2, 3, 4, 1, 2, 3, 4), "2 adapters and the base": (1, 0, 2, 0, 1, 0, 2, 0)}
STRATEGIES = {
    "base": LONG_RUN, "a piece a run": 1, "one stack": 10**9, GROUPED: None, "by length": LONG_RUN, KERNEL: LONG_RUN,
}
"""By their shortest run that is a piece of its own; None: no pieces."""


class Products(nn.Module):
    """Every Linear of the model, each on an input of the right width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in SHAPES.items()})
            for _ in range(LAYERS)
        )

    def forward(self, hidden: torch.Tensor, inner: torch.Tensor) -> None:
        for layer in self.layers:
            for name in SHAPES:
                layer[name](inner if name == "down_proj" else hidden)


def adapter(version: int) -> AdapterWeights:
    """A random rank-8 adapter on all seven projections."""
    pairs = {
        f"layers.{layer}.{name}": LoraPair(torch.randn(RANK, inputs), torch.randn(outputs, RANK), 2.0, 16.0)
        for layer in range(LAYERS) for name, (inputs, outputs) in SHAPES.items()
    }
    return AdapterWeights(str(version), pairs, (), "float32", "float32", None)


class GroupedRouter:
    """By `grouped_mm`: rows gathered by adapter, a product a group for A and for B, added back to their rows."""

    def __init__(self, model: Products, pool: AdapterPool) -> None:
        self._model, self._pool = model, pool
        self._handles: list[Any] = []
        self._order = self._ends = torch.empty(0)

    @contextmanager
    def step(self, ids: np.ndarray[Any, Any]) -> Iterator[None]:
        used, counts = np.unique(ids[ids > 0], return_counts=True)
        order = np.argsort(ids, kind="stable")[(ids == 0).sum() :]
        self._order, self._ends = torch.from_numpy(order), torch.from_numpy(np.cumsum(counts).astype(np.int32))
        if not self._handles:
            bank = self._pool.reside(used.tolist())
            for name, stack in bank.stacks.items():
                a = torch.stack([stack.a[:, bank.columns[version]] for version in used])  # [G, in, r]
                b = torch.stack([stack.b[bank.columns[version]] for version in used])  # [G, r, out]
                self._handles.append(self._model.get_submodule(name).register_forward_hook(self._hook(a, b)))
        yield

    def _hook(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        def add(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            x, y = inputs[0][0], output[0]
            hidden = grouped_mm(x[self._order], a, offs=self._ends)
            y.index_add_(0, self._order, grouped_mm(hidden, b, offs=self._ends))

        return add

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def race(
    model: Products, pool: AdapterPool, lengths: tuple[int, ...], mix: tuple[int, ...], rounds: int
) -> list[float]:
    """The best milliseconds of each strategy."""
    routers: list[Any] = [
        GroupedRouter(model, pool) if long_run is None else
        Router(model, pool, long_run, load_kernels(cache_home(os.environ)) if name == KERNEL else None)
        for name, long_run in STRATEGIES.items()
    ]
    total = sum(lengths)
    hidden, inner = torch.randn(1, total, HIDDEN), torch.randn(1, total, INTERMEDIATE)
    ids = np.repeat(np.asarray(mix, dtype=np.int32), lengths)
    best = [float("inf")] * len(routers)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    with torch.inference_mode():
        require_equal(model, routers[1:], ids, hidden, inner)
        for _ in range(rounds):
            for k, router in enumerate(routers):
                for _ in range(STEPS if total < LONG_RUN else 1):
                    start = clock()
                    with router.step(ids) if k else nullcontext():
                        model(hidden, inner)
                    best[k] = min(best[k], (clock() - start) * 1e3)
                router.detach()
    return best


def require_equal(
    model: Products, routers: list[Any], ids: np.ndarray[Any, Any], hidden: torch.Tensor, inner: torch.Tensor
) -> None:
    """Stop unless every strategy gives the first one's numbers."""
    given: dict[int, torch.Tensor] = {}
    for k, router in enumerate(routers):
        with router.step(ids):
            given[k] = torch.cat([model.layers[1][name](hidden)[0] for name in ("q_proj", "up_proj")], dim=1)
        router.detach()
        if not torch.allclose(given[k], given[0], atol=1e-3):
            raise SystemExit(f"strategy {k + 1} gives other numbers: {(given[k] - given[0]).abs().max()}")


def embedded() -> Any:
    return load(resolve(EMBEDDED, cache_home(os.environ)), attn_implementation="sdpa").model


def save_adapters(folder: Path) -> dict[str, str]:
    """Four random adapters of rank 8 on all seven projections, in PEFT's format."""
    model = embedded()
    for name in "abcd":
        config = LoraConfig(r=RANK, lora_alpha=16, target_modules=list(SHAPES), task_type="CAUSAL_LM")
        wrapped = get_peft_model(model, config)
        for key, parameter in wrapped.named_parameters():
            if "lora_B" in key:
                nn.init.normal_(parameter, std=0.002)
        wrapped.save_pretrained(folder / name, save_embedding_layers=False)
        model = wrapped.unload()
    return {name: str(folder / name) for name in "abcd"}


def whole_runs(threads: int, rounds: int) -> None:
    """Print tokens a second of whole runs, the best of some rounds that alternate."""
    generator = np.random.default_rng(0)
    prompts = [tuple(generator.integers(1000, 40000, length).tolist()) for length in PROMPTS]
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            paths = save_adapters(Path(folder))
            padded = PeftModel.from_pretrained(embedded(), paths["a"], adapter_name="a")
            for name in "bcd":
                padded.load_adapter(paths[name], name)
        padded.eval()
        longest = max(PROMPTS)
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        config = EngineConfig.from_env(threads=threads, adapters=paths)
        with Engine(config) as engine:

            def ask(adapters: list[str | None]) -> None:
                engine.ask([
                    Question(id=str(k), prompt_token_ids=prompt, adapter=adapter, max_new_tokens=NEW_TOKENS,
                             ignore_eos=True, sampling=SamplingParams(temperature=0.0))
                    for k, (prompt, adapter) in enumerate(zip(prompts, adapters, strict=True))
                ])

            def generate() -> None:
                padded.generate(
                    input_ids=ids, attention_mask=mask, adapter_names=[*"abcdabcd"], do_sample=False,
                    min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS, pad_token_id=0,
                )

            contestants = {
                "engine, base": lambda: ask([None] * 8),
                "engine, 4 adapters": lambda: ask([*"abcdabcd"]),
                "PEFT adapter_names, 4 adapters, padded": generate,
            }
            best = dict.fromkeys(contestants, float("inf"))
            for _ in range(rounds):
                for name, run in contestants.items():
                    start = time.perf_counter()
                    run()
                    best[name] = min(best[name], time.perf_counter() - start)
    print("\n| whole run | seconds | new tokens/s | time by base |\n|---|---|---|---|")
    for name, seconds in best.items():
        rate = len(PROMPTS) * NEW_TOKENS / seconds
        print(f"| {name} | {seconds:.1f} | {rate:.1f} | {seconds / best['engine, base']:.2f}× |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = Products().requires_grad_(False)
    pool = AdapterPool(model, 4)
    for version in range(1, 5):
        pool.add(f"a{version}", adapter(version))
    print(f"| rows | adapters | {' | '.join(f'{name}, ms' for name in STRATEGIES)} |")
    print(f"|{'---|' * (2 + len(STRATEGIES))}")
    for rows, lengths in ROWS.items():
        for what, mix in MIXES.items():
            rounds = arguments.rounds if len(lengths) == sum(lengths) else max(2, arguments.rounds // 8)
            best = race(model, pool, lengths, mix, rounds)
            cells = [f"{best[0]:.1f}", *(f"{value:.1f} ({value / best[0]:.2f}×)" for value in best[1:])]
            print(f"| {rows} | {what} | {' | '.join(cells)} |", flush=True)
    if arguments.whole:
        whole_runs(arguments.threads, max(2, arguments.rounds // 8))


if __name__ == "__main__":
    main()
