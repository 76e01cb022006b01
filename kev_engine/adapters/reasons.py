"""Every reason for which an adapter is refused: a template for people, under the name programs know it by.

    refusal(name, kind, **facts) -> AdapterRefused
    python -m kev_engine.adapters.reasons     prints the table of docs/adapters.md
"""

from __future__ import annotations

from collections.abc import Mapping

from kev_engine.errors import AdapterRefused

TRAINED_ON = "; it was trained on {base}"
"""Stands behind a reason where the configuration names its base model."""

REASONS: Mapping[str, str] = {
    # where it comes from
    "no_source": "{path} is no folder, no .zip of one and no hf:owner/name or modelscope:owner/name",
    "hub": "{message}",
    "unreadable": "{path} cannot be read ({error})",
    "missing": "{path} has no {file}",
    "pickle": "{path} has only {file}, a pickle that could run code; convert it where you trust it: {command}",
    "link": "{file} is a link out of its folder; copy the file itself into the folder",
    "irregular": "{file} is not a regular file",
    "too_large": "{file} is larger than the limit of {limit} bytes",
    "upload": "what was uploaded is {files}; give one .zip, or {config} and {weights}",
    # an archive
    "archive_unreadable": "the archive {path} cannot be read ({error})",
    "archive_members": "the archive has {count} members, more than {limit}",
    "archive_outside": "the archive's member {member} points outside of it",
    "archive_link": "the archive's member {member} is a link; pack the file itself",
    "archive_twice": "the archive holds {member} twice",
    "archive_several": "the archive holds several adapters ({folders}); pack one",
    "archive_too_large": "{member} unpacks to more than the limit of {limit} bytes",
    # its configuration
    "not_json": "adapter_config.json is not readable JSON ({error})",
    "no_object": "adapter_config.json does not hold a JSON object",
    "method": "peft_type is {value}, and only LORA can be applied per token",
    "bias": "bias is {value}, which changes the base's biases; train with bias='none'",
    "init": (
        "init_lora_weights is {value}: it was trained against changed base weights; save it again with "
        "path_initial_model_for_weight_conversion, which makes it a plain LoRA"
    ),
    "use_dora": "it is a DoRA adapter, which rescales the base weights and cannot be added per token",
    "modules_to_save": "modules_to_save replaces whole modules of the base; train with LoRA on them instead",
    "lora_bias": "lora_bias adds a bias of its own; train with lora_bias=False",
    "alora_invocation_tokens": "it is an activated LoRA (aLoRA), which starts in the middle of a sequence",
    "target_parameters": "target_parameters adapts bare parameters, not Linear modules",
    "layer_replication": "layer_replication changes how many layers the base has",
    "trainable_token_indices": "trainable_token_indices replaces rows of the base's embedding",
    "use_qalora": "it is a QALoRA adapter, which pools its input; convert it to plain LoRA",
    "megatron_config": "megatron_config is for a model split by Megatron",
    "ensure_weight_tying": "ensure_weight_tying ties the adapter to the embedding; train without it",
    "unknown_key": "its configuration sets {key} to {value}, which is not known here",
    "wrong_rank": "{key} in its configuration is {value} but must be a whole number from 1 to {limit}",
    "wrong_number": "{key} in its configuration is {value} but must be a finite number",
    "wrong_flag": "{key} in its configuration is {value} but must be true or false",
    "wrong_table": "{key} in its configuration is {value} but must be a table of module patterns",
    "wrong_names": "{key} in its configuration is {value} but must be a list of names or one string",
    "wrong_layers": "{key} in its configuration is {value} but must be a layer number or a list of them",
    "wrong_regex": "{key} in its configuration is {value} but must be a regular expression ({error})",
    "no_targets": (
        "target_modules in its configuration is {value} but must be a list of module names, a regular expression or "
        "'all-linear'"
    ),
    "layers_with_regex": "{key} in its configuration must be left out where target_modules is one string",
    "slow_regex": "a regular expression in its configuration takes too long to match",
    "nothing_matches": "target_modules {value} matches no module of this model",
    # its weights
    "not_safetensors": "its weights are not a whole safetensors file ({error})",
    "no_tensors": "its weights file holds no tensors",
    "no_lora": "its weights file holds no lora_A and lora_B",
    "wrong_dtype": "{key} is {dtype}, not a 16-, 32- or 64-bit float",
    "twice": "its weights file has {key} twice",
    "row_half": "{key} is for an embedding, which that module of this model is not",
    "column_half": "{key} is for a Linear module, which that module of this model is not",
    "stray_key": "{key} matches no module of this model",
    "own_copy": (
        "{key} is its own copy of a base weight and differs from this model's; save the adapter with "
        "save_embedding_layers=False if it does not need it"
    ),
    "not_targeted": "{module} has weights, but its configuration does not target it",
    "no_module": "{module} has weights, but is no module of this model",
    "half_missing": "{module} has {given} but no {missing}",
    "not_linear": "{module} is a {type}; only Linear modules and embeddings can be adapted per token",
    "rank_differs": "{key} has rank {given} but its configuration says {rank}",
    "shape": "{key} has shape {given} but this model needs {wanted}",
    "not_finite": "{key} holds numbers that are not finite",
    "overflow": "{key} is too large for this model's {dtype} (its scale is {scale})",
}


def refusal(name: str, kind: str, base: str | None = None, **facts: object) -> AdapterRefused:
    """The error for the adapter `name`, with REASONS[kind] filled from `facts`; `base` is what it was trained on."""
    reason = REASONS[kind].format(**facts) + (TRAINED_ON.format(base=repr(base)) if base else "")
    return AdapterRefused(name, reason, kind, **facts, **({"base": repr(base)} if base else {}))


def table() -> str:
    """The reasons as docs/adapters.md shows them; what stands in braces is filled in."""
    rows = (f"| `{kind}` | {reason.replace('|', chr(92) + '|')} |" for kind, reason in REASONS.items())
    return "\n".join(["| name | adapter 'x' was refused: |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table())
