"""Every tokenizer that the text tests run over."""

from __future__ import annotations

from typing import Any

import pytest

from kev_engine.text.chat import ChatEncoder
from tests.models.tiny import tiny_tokenizer
from tests.text import made

MADE = {
    "chatml": tiny_tokenizer, "qwen": made.qwen_like, "llama": made.llama_like, "gemma": made.gemma_like,
    "unigram": made.unigram_like,
}


@pytest.fixture(scope="session")
def made_tokenizers() -> dict[str, Any]:
    return {name: make() for name, make in MADE.items()}


@pytest.fixture(params=["embedded", *MADE])
def tokenizer(request: pytest.FixtureRequest, made_tokenizers: dict[str, Any]) -> Any:
    if request.param == "embedded":
        return request.getfixturevalue("embedded_tokenizer")
    return made_tokenizers[request.param]


@pytest.fixture(scope="session")
def encoders() -> dict[int, ChatEncoder]:
    return {}


@pytest.fixture
def encoder(tokenizer: Any, encoders: dict[int, ChatEncoder]) -> ChatEncoder:
    """The tokenizer's encoder, made once: its twin takes a second."""
    return encoders.setdefault(id(tokenizer), ChatEncoder(tokenizer))


@pytest.fixture
def embedded_encoder(embedded_tokenizer: Any, encoders: dict[int, ChatEncoder]) -> ChatEncoder:
    return encoders.setdefault(id(embedded_tokenizer), ChatEncoder(embedded_tokenizer))
