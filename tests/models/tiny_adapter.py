"""Random adapters for the tiny Llama, in PEFT's layout. Seeded: equal calls give equal weights."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.models.tiny import tiny_model

TARGETS = ("q_proj", "v_proj", "down_proj")


@cache
def target_shapes() -> dict[str, tuple[int, int]]:
    return {
        name: (module.in_features, module.out_features) for name, module in tiny_model("llama").named_modules()
        if name.endswith(TARGETS)
    }


def write_adapter(folder: Path, seed: int, rank: int = 4, strength: float = 0.3, **config: Any) -> Path:
    """`folder`, filled with an adapter of this rank; `config` changes its configuration alone."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (inputs, outputs) in target_shapes().items():
        for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            tensors[f"base_model.model.{name}.lora_{half}.weight"] = torch.randn(shape, generator=generator) * strength
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(TARGETS), **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder
