"""From a resolved model to one that is ready for packed forwards: checked, in memory, and described."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kev_engine.errors import ModelIncomplete, ModelUnsupported
from kev_engine.models.experts import use_tiled_experts
from kev_engine.models.folder import model_files
from kev_engine.models.mapping import MappedWeights
from kev_engine.models.memory import available_bytes, require_memory
from kev_engine.models.probe import attention_facts
from kev_engine.models.progress import Progress, silent, transformers_heard
from kev_engine.models.repository import first_line
from kev_engine.models.sources import ResolvedModel
from kev_engine.models.support import causal_class, refusal, rope_kinds
from kev_engine.models.tokens import check_special_tokens, stop_token_ids

LOAD_REPORT = "LOAD REPORT"
"""Marks transformers' table of missing and left-over weights, whose content we turn into sentences of our own."""
TEXT_PART = {r"^language_model\.model\.": "model.", r"^language_model\.": "", r"^model\.language_model\.": "model."}
"""Where the text part of a multimodal model stands in its files, and where the text model alone has it."""


@dataclass(frozen=True)
class ModelFacts:
    """What the rest of the engine must know of a model.

    `layer_windows[l]` is the sliding window of layer l in tokens, None = the whole story; `needs` what a backend must
    compute beyond plain attention (of "window", "softcap", "sinks"); `vocab_size` the number of logits; `rope` the
    kinds of RoPE, "none" without. `digest` identifies weights and tokenizer.
    """

    name: str
    digest: str
    model_type: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    layer_windows: tuple[int | None, ...]
    rope: str
    softcap: float | None
    needs: frozenset[str]
    dtype: torch.dtype
    stop_token_ids: frozenset[int]
    bos_token_id: int | None
    pad_token_id: int | None


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """The transformers model (eval, without gradients), its tokenizer, its facts, what a user should know, and which
    weights lie in mapped files."""

    model: Any
    tokenizer: Any
    facts: ModelFacts
    warnings: tuple[str, ...]
    seconds: float
    mapped: MappedWeights = field(default_factory=MappedWeights)


def load(
    resolved: ResolvedModel, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
    progress: Progress = silent, attn_implementation: str = "eager",
) -> LoadedModel:
    """The model in memory on `device`.

    Raises ModelIncomplete where files or weights are missing, ModelUnsupported where its layers cannot keep packed
    segments apart, and NotEnoughSpace before a byte of the weights is read.
    """
    from transformers import AutoTokenizer

    progress("load", 0, 0)
    start = time.perf_counter()
    device = torch.device(device)
    files = model_files(resolved.path)
    config = _read_config(resolved.path)
    reason = refusal(config)
    if reason is not None:
        raise ModelUnsupported(reason)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    require_memory(f"{resolved.name} in memory", files.num_weights * dtype.itemsize, free)
    with transformers_heard("load", progress) as heard:
        try:
            tokenizer = AutoTokenizer.from_pretrained(resolved.path, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise ModelIncomplete(
                f"the tokenizer of {resolved.name} cannot be read ({first_line(error)}); "
                "put the model's tokenizer.json into its folder."
            ) from error
        unused: list[str] = []
        mapped = MappedWeights()
        if resolved.is_converted:
            model = _read_converted(resolved, config, dtype, device, attn_implementation, progress, mapped)
        else:
            model, unused = _read_weights(resolved, config, dtype, device, attn_implementation)
        use_tiled_experts(model)
    check_special_tokens(tokenizer, resolved.name)
    facts = _facts(resolved, model, tokenizer, dtype)
    warnings = [*resolved.warnings, *(line for line in heard if LOAD_REPORT not in line)]
    if unused:
        count, first = len(unused), unused[0]
        warnings.append(f"weights in the files of {resolved.name} belong to no layer ({count}, first {first}).")
    return LoadedModel(model, tokenizer, facts, tuple(dict.fromkeys(warnings)), time.perf_counter() - start, mapped)


def _read_config(folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnsupported(
            f"{folder / 'config.json'} describes no model this version of transformers knows without running code "
            f"from its author ({first_line(error)}); choose a model of a known family (docs/models.md)."
        ) from error


def _read_converted(
    resolved: ResolvedModel, config: Any, dtype: torch.dtype, device: torch.device, attn_implementation: str,
    progress: Progress, mapped: MappedWeights,
) -> Any:
    """The model that `_read_weights` gives, out of files that this program wrote: their names are the model's own.

    `from_pretrained` would first compile the renamings of every model it knows, half of its time on a small one.
    """
    from safetensors.torch import load_file
    from transformers import GenerationConfig
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = causal_class(config)._from_config(config, dtype=dtype, attn_implementation=attn_implementation)
    weights: dict[str, torch.Tensor] = {}
    files = sorted(resolved.path.glob("*.safetensors"))
    for index, file in enumerate(files):
        progress("load", index, len(files))
        read = load_file(file)
        mapped.add([*read.values()])
        weights |= {name: weight.to(dtype) for name, weight in read.items()}
    found = model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    missing = sorted(set(found.missing_keys) - set(model._tied_weights_keys or ()))
    if missing or found.unexpected_keys:
        first = [*missing, *found.unexpected_keys][0]
        raise ModelIncomplete(f"{resolved.path} does not hold what {resolved.name} needs ({first}); remove it.")
    model.generation_config = GenerationConfig.from_pretrained(resolved.path, local_files_only=True)
    return model.to(device).eval().requires_grad_(False)


def _read_weights(
    resolved: ResolvedModel, config: Any, dtype: torch.dtype, device: torch.device, attn_implementation: str
) -> tuple[Any, list[str]]:
    """The causal language model of the text part, every weight of it read from the files, and the names left over.

    (Of a multimodal model everything but the text part is left over, which is no news.)
    """
    text = config.get_text_config(decoder=True)
    options: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    if text is not config:
        options["key_mapping"] = TEXT_PART
    try:
        model, report = causal_class(text).from_pretrained(
            resolved.path, config=text, dtype=dtype, attn_implementation=attn_implementation, use_safetensors=True,
            local_files_only=True, output_loading_info=True, **options,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelIncomplete(
            f"the weights of {resolved.name} cannot be read ({first_line(error)}); fetch them again."
        ) from error
    for key, problem in (("missing_keys", "missing from its files"), ("mismatched_keys", "of another shape")):
        names = sorted(str(name) for name in report.get(key) or ())
        if names:
            raise ModelIncomplete(
                f"weights of {resolved.name} are {problem} ({len(names)}, first {names[0]}); fetch it again."
            )
    unused = sorted(str(name) for name in report.get("unexpected_keys") or ())
    return model.eval().requires_grad_(False), unused if text is config else []


def _facts(resolved: ResolvedModel, model: Any, tokenizer: Any, dtype: torch.dtype) -> ModelFacts:
    config = model.config
    layers = attention_facts(model, config.num_hidden_layers)
    return ModelFacts(
        name=resolved.name, digest=resolved.digest, model_type=config.model_type, num_layers=layers.num_layers,
        num_heads=layers.num_heads, num_kv_heads=layers.num_kv_heads, head_dim=layers.head_dim,
        vocab_size=model.get_output_embeddings().weight.shape[0],
        max_context=int(getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length),
        layer_windows=layers.windows, rope="+".join(sorted(rope_kinds(config))) or "none", softcap=layers.softcap,
        needs=layers.needs, dtype=dtype, stop_token_ids=stop_token_ids(tokenizer, model.generation_config),
        bos_token_id=tokenizer.bos_token_id, pad_token_id=tokenizer.pad_token_id,
    )
