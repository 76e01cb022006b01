"""Tiny models and adapters that PEFT itself made, for the tests of this package."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from kev_engine.models.prepare import prepare
from kev_engine.native.kernels import Kernels

VOCAB = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "attn_implementation": "sdpa",
    "tie_word_embeddings": True,
}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def tiny(kind: str) -> PreTrainedModel:
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**SIZES))
    # Large enough weights that an adapter, a neighbour or a wrong row is seen in the logits.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="session", params=["llama", "qwen2"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    """The Llama as transformers loads it, the Qwen2 (whose products have biases) as the engine prepares it."""
    model = tiny(request.param)
    if request.param == "qwen2":
        assert prepare(model)["FusedAttention"] == 3
    return model


@pytest.fixture(scope="session")
def llama(kernels: Kernels) -> PreTrainedModel:
    """A prepared Llama: query, key and value, and gate and up, are one product each."""
    model = tiny("llama")
    assert prepare(model, kernels)["FusedFeedForward"] == 3
    return model


@contextmanager
def without_pefts_warnings() -> Iterator[None]:
    """PEFT warns of what it does with old names in transformers and of tied heads; neither is under test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


SaveAdapter = Callable[..., Path]


@pytest.fixture(scope="session")
def save_adapter(tmp_path_factory: pytest.TempPathFactory) -> SaveAdapter:
    """save_adapter(kind, seed=…, **LoraConfig fields) -> the folder PEFT saved, with random A and B."""

    def save(kind: str, seed: int = 0, **fields: Any) -> Path:
        folder = tmp_path_factory.mktemp("adapter")
        torch.manual_seed(seed)
        config = LoraConfig(**({"target_modules": PROJECTIONS, "task_type": "CAUSAL_LM"} | fields))
        with without_pefts_warnings(), torch.no_grad():
            wrapped = get_peft_model(tiny(kind), config)
            for name, parameter in wrapped.named_parameters():
                if "lora_" in name:
                    parameter.normal_(std=0.1)
            wrapped.save_pretrained(folder, save_embedding_layers=False)
        return folder

    return save


@cache
def peft_model(kind: str, folder: Path | None) -> Any:
    """The base, or PEFT's own model around an adapter; each is made once."""
    base = tiny(kind)
    with without_pefts_warnings():
        return base if folder is None else PeftModel.from_pretrained(base, folder).eval()


def peft_logits(kind: str, folder: Path | None, tokens: list[int]) -> torch.Tensor:
    """`[T, V]` by PEFT's own forward over one sequence alone, or the base's for no folder: the oracle."""
    with without_pefts_warnings(), torch.inference_mode():
        return peft_model(kind, folder)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].clone()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
