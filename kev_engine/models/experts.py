"""Mixture-of-experts layers whose products have one shape, whatever the neighbours' tokens are routed to.

A matrix product rounds a row differently when it has another number of rows beside it. transformers hands each expert
all rows of the step that chose it, so a neighbour's routing would move my last bits. Here every product has `TILE`
rows, so they do not depend on anybody else's tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear, pad

EXPERTS_IMPLEMENTATION = "kev"
"""The name under which `tiled_experts` stands in transformers' ExpertsInterface."""
TILE = 16


def use_tiled_experts(model: Any) -> None:
    """Let the model's experts compute in tiles; a model without experts stays as it is."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(EXPERTS_IMPLEMENTATION, tiled_experts)
    model.set_experts_implementation(EXPERTS_IMPLEMENTATION)


def tiled_experts(
    experts: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """The weighted sum of each token's experts, `[T, H]`, from `[T, H]` and the router's choice `[T, k]` each."""
    num_tokens, top_k = top_k_index.shape
    chosen = top_k_index.flatten()  # [T × k]
    out = hidden_states.new_empty((num_tokens * top_k, hidden_states.shape[-1]))
    for expert in torch.bincount(chosen).nonzero()[:, 0].tolist():
        pairs = (chosen == expert).nonzero()[:, 0]
        rows = pad(hidden_states[pairs // top_k], (0, 0, 0, -len(pairs) % TILE))
        read = torch.cat([_expert(experts, expert, rows[at : at + TILE]) for at in range(0, len(rows), TILE)])
        out[pairs] = read[: len(pairs)]
    weighted = out.view(num_tokens, top_k, -1) * top_k_weights[..., None]
    return weighted.sum(dim=1).to(hidden_states.dtype)


def _expert(experts: Any, expert: int, rows: torch.Tensor) -> torch.Tensor:
    if experts.has_gate:
        hidden = experts._apply_gate(_linear(experts, "gate_up_proj", expert, rows))
    else:
        hidden = experts.act_fn(_linear(experts, "up_proj", expert, rows))
    out = _linear(experts, "down_proj", expert, hidden)
    normed: torch.Tensor = experts.post_expert_norm(out) if experts.has_post_expert_norm else out
    return normed


def _linear(experts: Any, name: str, expert: int, rows: torch.Tensor) -> torch.Tensor:
    weight = getattr(experts, name)[expert]
    bias = getattr(experts, f"{name}_bias")[expert] if experts.has_bias else None
    return linear(rows, weight.T if experts.is_transposed else weight, bias)
