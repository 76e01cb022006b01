"""Who is raced: the engine, and what a user would run instead. Each takes a Work and returns its token ids."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from benchmarks.works import Work
from kev_engine.config import EMBEDDED, EngineConfig, cache_home
from kev_engine.models.load import load
from kev_engine.models.sources import resolve
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import TextDelta

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTER_NAMES, RANK = "abcd", 8
Answers = list[list[int]]
Times = list[list[float]]
"""For each question, the seconds of its arrival and of each of its tokens."""


def embedded() -> Any:
    """The embedded model as transformers runs it, and its tokenizer."""
    loaded = load(resolve(EMBEDDED, cache_home(os.environ)), attn_implementation="sdpa")
    loaded.model.generation_config = GenerationConfig(pad_token_id=0, do_sample=False)
    return loaded


def save_adapters(folder: Path) -> dict[str, str]:
    """Four random adapters of rank 8 on all seven projections, in PEFT's format: their folders by name."""
    model = embedded().model
    torch.manual_seed(0)
    for name in ADAPTER_NAMES:
        config = LoraConfig(r=RANK, lora_alpha=16, target_modules=PROJECTIONS, task_type="CAUSAL_LM")
        wrapped = get_peft_model(model, config)
        for key, parameter in wrapped.named_parameters():
            if "lora_B" in key:
                nn.init.normal_(parameter, std=0.002)
        wrapped.save_pretrained(folder / name, save_embedding_layers=False)
        model = wrapped.unload()
    return {name: str(folder / name) for name in ADAPTER_NAMES}


class Stamps(BaseStreamer):  # type: ignore[misc]
    """Notes when each new token comes; the first thing a streamer is given is the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._is_prompt = True

    def put(self, value: Any) -> None:
        if not self._is_prompt:
            self.times.append(time.perf_counter())
        self._is_prompt = False

    def end(self) -> None:
        pass


class Transformers:
    """The embedded model in transformers: one by one, padded, continuous batching."""

    def __init__(self) -> None:
        loaded = embedded()
        self.model, self.tokenizer = loaded.model, loaded.tokenizer

    def one_by_one(self, work: Work) -> Answers:
        return [
            self.model.generate(torch.tensor([prompt]), max_new_tokens=work.new_tokens)[0, len(prompt) :].tolist()
            for prompt in work.prompts
        ]

    def padded(self, work: Work, **keywords: Any) -> Answers:
        return padded(self.model, work, **keywords)

    def continuous(self, work: Work) -> Answers:
        """transformers' own continuous batching."""
        config = GenerationConfig(max_new_tokens=work.new_tokens, eos_token_id=-1, pad_token_id=0, do_sample=False)
        attention = self.model.config._attn_implementation
        try:
            done = self.model.generate_batch(
                [list(prompt) for prompt in work.prompts], generation_config=config, progress_bar=False
            )
        finally:
            self.model.set_attn_implementation(attention)
        in_order = sorted(done.values(), key=lambda output: int(output.request_id.rsplit("_", 1)[-1]))
        return [list(output.generated_tokens) for output in in_order]

    def queue(self, work: Work) -> Times:
        """The questions in the order of their arrival, one at a time, as a server without batching would."""
        begin = time.perf_counter()
        found = []
        for number, prompt in enumerate(work.prompts):
            arrival = begin + number * work.arrival_seconds
            time.sleep(max(0.0, arrival - time.perf_counter()))
            stamps = Stamps()
            self.model.generate(torch.tensor([prompt]), max_new_tokens=work.new_tokens, streamer=stamps)
            found.append([arrival, *stamps.times])
        return found

    def top_gap(self, prompt: tuple[int, ...], so_far: list[int]) -> float:
        """How far the two likeliest next tokens lie apart."""
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*prompt, *so_far]]), logits_to_keep=1).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        return float(first - second)


def padded(model: Any, work: Work, **keywords: Any) -> Answers:
    """One batched `generate` over prompts that are padded on the left."""
    longest = max(map(len, work.prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in work.prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in work.prompts])
    out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=work.new_tokens, **keywords)
    return [row[longest:].tolist() for row in out]


class Peft:
    """PEFT with one adapter name a row of the padded batch."""

    def __init__(self, adapters: dict[str, str]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, *rest = adapters
            self.model = PeftModel.from_pretrained(embedded().model, adapters[first], adapter_name=first).eval()
            for name in rest:
                self.model.load_adapter(adapters[name], name)

    def padded(self, work: Work) -> Answers:
        return padded(self.model, work, adapter_names=[name or "__base__" for name in work.adapters])

    def one_by_one(self, work: Work) -> Answers:
        """Each question under its own adapter alone: the tokens that are right."""
        found = []
        for prompt, name in zip(work.prompts, work.adapters, strict=True):
            keywords = {"input_ids": torch.tensor([prompt]), "max_new_tokens": work.new_tokens}
            if name is None:
                with self.model.disable_adapter():
                    out = self.model.generate(**keywords)
            else:
                self.model.set_adapter(name)
                out = self.model.generate(**keywords)
            found.append(out[0, len(prompt) :].tolist())
        return found


class Kev:
    """The engine of this repository."""

    def __init__(self, threads: int, adapters: dict[str, str], dtype: str = "float32") -> None:
        # Without the prefix cache: one contestant's prompts must not spare the next one's.
        self.engine = Engine(EngineConfig.from_env(
            threads=threads, adapters=adapters, dtype=dtype, kv_budget_bytes=1 << 30, prefix_cache_bytes=0
        ))

    def ask(self, work: Work) -> Answers:
        run = self.engine.ask(work.questions, work.shared)
        for answer in run.answers:
            assert answer.error is None, answer.error
        return [list(answer.token_ids) for answer in run.answers]

    def ask_base(self, work: Work) -> Answers:
        """The same prompts without their adapters."""
        return self.ask(replace(work, questions=tuple(replace(question, adapter=None) for question in work.questions)))

    def arrivals(self, work: Work) -> Times:
        """Each question as a run of its own that is submitted when it arrives."""
        begin = time.perf_counter()
        found: Times = [[begin + number * work.arrival_seconds] for number in range(len(work.questions))]

        def follow(number: int) -> None:
            time.sleep(max(0.0, found[number][0] - time.perf_counter()))
            for event in self.engine.stream([work.questions[number]]):
                if isinstance(event, TextDelta):
                    found[number] += [time.perf_counter()] * len(event.token_ids)

        readers = [threading.Thread(target=follow, args=(number,)) for number in range(len(found))]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return found


class Vllm:
    """vLLM in a process of its own environment, spoken to in lines of JSON (benchmarks/vllm_server.py)."""

    def __init__(self, python: str, model: Path, threads: int, is_eager: bool) -> None:
        # -P: the folder's queue.py must not stand in for Python's own.
        server = str(Path(__file__).with_name("vllm_server.py"))
        command = [python, "-P", server, str(model), "eager" if is_eager else ""]
        variables = {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 – it lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", **variables},
        )
        self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._log.seek(0)
        raise RuntimeError(f"vLLM ended: {self._log.read().decode(errors='replace')[-2000:]}")

    def generate(self, work: Work) -> Answers:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": work.prompts, "new_tokens": work.new_tokens}) + "\n")
        self._process.stdin.flush()
        answers: Answers = self._read()["answers"]
        return answers

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


Run = Callable[[Work], Answers]
