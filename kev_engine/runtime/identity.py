"""What the keys and values of an engine depend on beside adapter and tokens, for the prefix cache."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from kev_engine.cache.prefix import Identity
from kev_engine.models.int8 import has_int8
from kev_engine.models.load import LoadedModel


def identity(loaded: LoadedModel, kv_dtype: torch.dtype) -> Identity:
    """The identity of a loaded model whose keys and values are stored in `kv_dtype`."""
    rope = getattr(loaded.model.config, "rope_parameters", None)
    return Identity(
        weights=loaded.facts.digest, dtype=f"{loaded.facts.dtype}{' from int8' if has_int8(loaded.model) else ''}",
        kv_dtype=str(kv_dtype),
        tokenizer=hashlib.sha256(loaded.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        chat_template=_canonical(loaded.tokenizer.chat_template), rope=_canonical(rope),
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
