"""A tokenizer by itself, from a folder or the Hugging Face hub; no weights are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kev_engine.errors import InvalidField, ModelNotFound, ModelUnsupported
from kev_engine.models.repository import first_line
from kev_engine.models.sources import HF, REPOSITORY


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a folder, or of hf:owner/name[@revision].

    Raises InvalidField for a name of another form, ModelNotFound where none can be had, and ModelUnsupported for one
    without a fast form.
    """
    from transformers import AutoTokenizer

    where, revision = name, None
    if name.startswith(HF):
        match = REPOSITORY.fullmatch(name.removeprefix(HF))
        if match is None:
            raise InvalidField("tokenizer", name, "one on the hub is named hf:owner/name, or with @revision behind it")
        where, revision = match["name"], match["revision"]
    elif not Path(name).expanduser().is_dir():
        raise InvalidField("tokenizer", name, "it must be a folder, or hf:owner/name")
    else:
        where = str(Path(name).expanduser())
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, revision=revision or "main", trust_remote_code=False)
    except Exception as error:  # The library raises whatever it trips over.
        raise ModelNotFound(f"the tokenizer {name} cannot be loaded: {first_line(error)}.") from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ModelUnsupported(f"the tokenizer {name} has no tokenizer.json form; use one that has.")
    return tokenizer
