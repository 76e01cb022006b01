"""GGUF files: read, checked for wholeness, and converted once to a folder that transformers loads."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kev_engine.errors import ModelError, ModelIncomplete, ModelUnsupported
from kev_engine.models.memory import available_bytes, require_memory
from kev_engine.models.progress import Progress, progress_bar, transformers_heard

CONVERSION = 1
"""Raised whenever `convert` writes something else for the same file, so that old conversions are built again."""

CONTROL = 3
FP32_BYTES = 4
# Byte-level vocabularies whose text is cut by GPT-2's pattern after every digit was set apart, and by the bare pattern.
# (llama.cpp keeps these groups; transformers' GGUF reader knows the others and cuts these all by the bare pattern.)
DIGITS_APART = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"})
BARE_GPT2 = frozenset({"gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling"})
PROBE = "Hello there!  In 2024 it's 3,141.59\n\n\tif x_1 >= 10:  naïve café — ÄÖÜ 你好，世界 🙂 don't DON'T   end"
TEMPLATE_TOKEN = re.compile(r"<\|[^<>|\s]+\|>")


@dataclass(frozen=True)
class Header:
    """What the conversion needs to know of a file: its metadata (vocabulary included) and its number of weights."""

    metadata: dict[str, Any]
    num_weights: int

    @property
    def split(self) -> str | None:
        """`tokenizer.ggml.pre`: the name of the pattern by which a byte-level vocabulary cuts text."""
        return self.metadata.get("tokenizer.ggml.pre")

    @property
    def is_byte_level(self) -> bool:
        return self.metadata.get("tokenizer.ggml.model") == "gpt2"

    @property
    def special_tokens(self) -> list[str]:
        """Tokens that text must never be cut into: those marked as control, and those the file's roles and template
        name (older files mark none)."""
        tokens: list[str] = self.metadata.get("tokenizer.ggml.tokens", [])
        kinds = self.metadata.get("tokenizer.ggml.token_type") or []
        found = [token for token, kind in zip(tokens, kinds, strict=False) if kind == CONTROL]
        for role in ("bos", "eos", "unknown", "padding", "eot", "eom"):
            token_id = self.metadata.get(f"tokenizer.ggml.{role}_token_id")
            if token_id is not None and token_id < len(tokens):
                found.append(tokens[token_id])
        vocabulary = set(tokens)
        named = TEMPLATE_TOKEN.findall(self.metadata.get("tokenizer.chat_template") or "")
        return list(dict.fromkeys([*found, *(token for token in named if token in vocabulary)]))


def content_digest(sha256: str) -> str:
    """The identity of the converted weights: the file's content and the version of the conversion."""
    return hashlib.sha256(json.dumps(["gguf", sha256, CONVERSION]).encode()).hexdigest()


def read_header(file: Path) -> Header:
    """The file's metadata. Raises ModelIncomplete where it is no GGUF file or ends before its last tensor does."""
    from transformers.integrations.gguf.reader import GgufHeader, read_gguf_metadata

    try:
        metadata, _ = read_gguf_metadata(str(file), ("tokenizer.ggml.tokens",))
        header = GgufHeader.from_file(str(file))
        end = max((info.offset + info.nbytes for info in header.tensors), default=0) + header.data_start
    except (OSError, ValueError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise ModelIncomplete(f"{file} cannot be read as a GGUF file ({error}); fetch it again.") from error
    if file.stat().st_size < end:
        raise ModelIncomplete(f"{file} ends at {file.stat().st_size:,} bytes of {end:,}; fetch it again.")
    weights = 0
    for info in header.tensors:
        count = 1
        for size in info.shape:
            count *= size
        weights += count
    return Header(metadata, weights)


def convert(file: Path, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Fills `folder` with the file's weights as fp32 safetensors, its configuration and its tokenizer.

    fp32 holds every dequantised value exactly. Returns what a user should know about the tokenizer. Raises
    ModelIncomplete for a damaged file, ModelUnsupported for a layout transformers cannot read, and NotEnoughSpace.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    header = read_header(file)
    require_memory(f"the conversion of {file.name}", header.num_weights * FP32_BYTES, available_bytes())
    progress("convert", 0, 0)
    try:
        with transformers_heard("convert", progress), _own_bar("convert", progress), _alone(file) as place:
            config = AutoConfig.from_pretrained(**place, local_files_only=True)
            tokenizer = read_tokenizer(file, header, config)
            model = AutoModelForCausalLM.from_pretrained(
                **place, local_files_only=True, config=config, dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
            )
            # Every file but the configuration is written from here; nothing refers back to the GGUF.
            vars(model.config).pop("quantization_config", None)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except ModelError:
        raise
    except (ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        architecture = header.metadata.get("general.architecture")
        raise ModelUnsupported(
            f"{file} (architecture {architecture!r}) cannot be read by transformers ({error}); "
            "use the model's safetensors folder instead."
        ) from error
    warning = split_warning(file, header, tokenizer)
    return () if warning is None else (warning,)


def read_tokenizer(file: Path, header: Header, config: Any = None) -> Any:
    """The file's tokenizer, cutting text as its vocabulary was learned where the file says how."""
    from tokenizers import AddedToken, pre_tokenizers
    from transformers import AutoTokenizer

    with _alone(file) as place:
        tokenizer = AutoTokenizer.from_pretrained(**place, config=config, local_files_only=True)
    whole = [AddedToken(token, normalized=False, special=True) for token in header.special_tokens]
    size = len(tokenizer)
    tokenizer.add_tokens(whole, special_tokens=True)
    if len(tokenizer) != size:
        raise ModelIncomplete(f"{file}: its special tokens are not all in its vocabulary of {size}; fetch it again.")
    if header.is_byte_level and header.split in DIGITS_APART:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def split_warning(file: Path, header: Header, tokenizer: Any) -> str | None:
    """A sentence where the file does not say how its byte-level vocabulary cuts text; None where it does.

    The tokens of a probe text are compared with those of the original tokenizer, where its tokenizer.json lies beside
    the file, and otherwise with those of every known way to cut text.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if not header.is_byte_level or header.split in DIGITS_APART | BARE_GPT2 | set(GGUF_PRE_TOKENIZER_SPLITS):
        return None
    missing = "is missing" if header.split is None else f"is {header.split!r}, which is not known here"
    return (
        f"tokenizer.ggml.pre {missing} in {file.name}, so text is cut as GPT-2 cuts it and tokens may differ from "
        f"those the model was trained with; {_compared(file, tokenizer, GGUF_PRE_TOKENIZER_SPLITS)}."
    )


def _compared(file: Path, tokenizer: Any, splits: dict[str, str]) -> str:
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    def ids(backend: Tokenizer) -> list[int]:
        found: list[int] = backend.encode(PROBE, add_special_tokens=False).ids
        return found

    here = ids(tokenizer.backend_tokenizer)
    original = file.parent / "tokenizer.json"
    if original.exists():
        there = ids(Tokenizer.from_file(str(original)))
        if there == here:
            return "on a probe text it gives the tokens of the tokenizer.json beside it"
        index = next((i for i, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), len(here))
        return f"on a probe text it gives other tokens than the tokenizer.json beside it, from token {index} on"
    differing = []
    for name in sorted(splits):
        other = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        other.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(splits[name]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
        if ids(other) != here:
            differing.append(name)
    return (
        f"on a probe text {len(differing)} of {len(splits)} known ways to cut text give other tokens; put the "
        "original tokenizer.json beside the file to compare with it"
    )


@contextmanager
def _alone(file: Path) -> Iterator[dict[str, str]]:
    """How transformers is told of the file, in a folder of its own: it would prefer a tokenizer.json beside it."""
    with TemporaryDirectory() as folder:
        link = Path(folder) / "model.gguf"
        link.symlink_to(file.resolve())
        yield {"pretrained_model_name_or_path": folder, "gguf_file": link.name}


@contextmanager
def _own_bar(stage: str, progress: Progress) -> Iterator[None]:
    """Reports the GGUF reader's own progress bar, which does not go through transformers' logging."""
    from transformers import modeling_gguf_pytorch_utils as reader

    drawn = reader.tqdm
    reader.tqdm = progress_bar(stage, progress)
    try:
        yield
    finally:
        reader.tqdm = drawn
