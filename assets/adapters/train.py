"""Trains the demo adapters on the embedded model: `python assets/adapters/train.py [pirate terse json]`.

Each takes a few minutes on two CPU cores. The data (data/<name>.jsonl, written for this project) are question and
answer pairs, some with a context; the prompts are laid out as the engine lays them out, and the loss is taken over the
answer alone. Writes <name>/adapter_config.json and <name>/adapter_model.safetensors, in PEFT's format.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import torch  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402

from kev_engine.config import EMBEDDED, cache_home  # noqa: E402
from kev_engine.models.load import load  # noqa: E402
from kev_engine.models.sources import resolve  # noqa: E402
from kev_engine.schema import Question  # noqa: E402
from kev_engine.text.chat import ChatEncoder  # noqa: E402

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
SEED, BATCH, EPOCHS, LEARNING_RATE, IGNORED = 0, 8, 4, 2e-3, -100
LAYERS = range(10, 30)
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
# Of different ranks and modules on purpose: a run that mixes them shows that any mix works.
TARGETS = {"pirate": (8, ATTENTION), "terse": (4, ATTENTION), "json": (8, ("q_proj", "v_proj", "o_proj"))}

Example = tuple[list[int], int]


def encode(name: str, encoder: ChatEncoder, tokenizer: object, stop: int) -> list[Example]:
    """Each pair of the data as token ids, with the index at which the answer starts."""
    examples = []
    for number, line in enumerate((HERE / "data" / f"{name}.jsonl").read_text().splitlines()):
        pair = json.loads(line)
        question = Question(id=str(number), question=pair["question"], context=pair.get("context", ""))
        prompt = list(encoder.encode(question).token_ids)
        answer = tokenizer(pair["answer"], add_special_tokens=False).input_ids  # type: ignore[operator]
        examples.append((prompt + answer + [stop], len(prompt)))
    return examples


def batches(examples: list[Example], generator: random.Random) -> list[list[Example]]:
    """The examples in batches of like length, in random order."""
    mixed = sorted(examples, key=lambda example: len(example[0]) + generator.random() * 8)
    cut = [mixed[start : start + BATCH] for start in range(0, len(mixed), BATCH)]
    generator.shuffle(cut)
    return cut


def loss_of(model: torch.nn.Module, batch: list[Example], pad: int) -> torch.Tensor:
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in batch])
    labels = torch.tensor([
        [IGNORED] * start + ids[start:] + [IGNORED] * (longest - len(ids)) for ids, start in batch
    ])
    first = min(start for _, start in batch) - 1
    # Padding stands at the right, where causal attention already keeps it away from every labelled token.
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=longest - first).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, first + 1 :].flatten())


def train(name: str) -> None:
    torch.manual_seed(SEED)
    generator = random.Random(SEED)
    loaded = load(resolve(EMBEDDED, cache_home(os.environ)), attn_implementation="sdpa")
    stop = loaded.tokenizer.eos_token_id
    examples = encode(name, ChatEncoder(loaded.tokenizer, loaded.facts.vocab_size), loaded.tokenizer, stop)
    rank, targets = TARGETS[name]
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=list(targets), layers_to_transform=list(LAYERS),
        task_type="CAUSAL_LM", base_model_name_or_path=BASE,
    )
    model = get_peft_model(loaded.model, config).train()
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=0.01)
    steps = EPOCHS * -(-len(examples) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in batches(examples, generator):
            loss = loss_of(model, batch, stop)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            total += loss.item() * len(batch)
        print(f"{name}: epoch {epoch + 1} of {EPOCHS}, loss {total / len(examples):.3f}, "
              f"{time.perf_counter() - start:.0f} s", flush=True)
    saved = model.peft_config["default"]
    # PEFT puts the folder it loaded from here, and keeps targets as a set, whose order changes from run to run.
    saved.base_model_name_or_path, saved.target_modules = BASE, sorted(targets)
    model.save_pretrained(HERE / name, save_embedding_layers=False)
    (HERE / name / "README.md").unlink(missing_ok=True)
    (HERE / name / "adapter_model.safetensors").chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.names or TARGETS:
        train(name)


if __name__ == "__main__":
    main()
