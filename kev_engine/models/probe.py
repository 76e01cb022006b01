"""What a loaded model's attention layers really call: recorded in a short forward, not guessed from names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kev_engine.errors import ModelUnsupported
from kev_engine.models.support import SINKS, SOFTCAP, WINDOW

PROBE_ATTENTION = "kev_probe"
KNOWN_KEYWORDS = frozenset({
    "scaling", "sliding_window", "softcap", "s_aux", "dropout", "is_causal", "position_ids", "use_cache",
    "cache_position", "output_attentions", "output_hidden_states", "output_router_logits", "probe",
})
"""What may arrive at an attention function without changing which tokens read which, or is part of `LayerCall`."""


@dataclass(frozen=True)
class LayerCall:
    """One call of the attention function: `[1, heads, T, size]` as (heads, size) of query, key and value."""

    layer: int
    query: tuple[int, int]
    key: tuple[int, int]
    value: tuple[int, int]
    window: int | None
    softcap: float | None
    has_sinks: bool


@dataclass(frozen=True)
class AttentionFacts:
    """The attention of a model whose layers all have one shape; `windows[l]` is layer l's, None = the whole story."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    softcap: float | None
    needs: frozenset[str]


def attention_facts(model: Any, num_layers: int) -> AttentionFacts:
    """The facts, from one forward of two tokens. Raises ModelUnsupported where a plan could not reach every layer."""
    calls = _record(model)
    if [call.layer for call in calls] != list(range(num_layers)):
        reached = len({call.layer for call in calls})
        raise _unsupported(model, f"of its {num_layers} layers {reached} attend, {len(calls)} times, and not once each")
    shapes = {(call.query, call.key, call.value) for call in calls}
    if len(shapes) != 1:
        raise _unsupported(model, "its layers have keys and values of different sizes, and the cache has one size")
    first = calls[0]
    if first.key != first.value or first.query[1] != first.key[1]:
        raise _unsupported(
            model, f"it has keys of {first.key[1]} and values of {first.value[1]} numbers, and the cache has one size"
        )
    softcaps = {call.softcap for call in calls}
    if len(softcaps) != 1:
        raise _unsupported(model, "its layers cap scores differently")
    windows = tuple(call.window for call in calls)
    needs = set()
    if any(window is not None for window in windows):
        needs.add(WINDOW)
    if first.softcap is not None:
        needs.add(SOFTCAP)
    if any(call.has_sinks for call in calls):
        needs.add(SINKS)
    return AttentionFacts(
        num_layers, first.query[0], first.key[0], first.key[1], windows, first.softcap, frozenset(needs)
    )


def _record(model: Any) -> list[LayerCall]:
    from transformers import AttentionInterface

    AttentionInterface.register(PROBE_ATTENTION, _probe_attention)
    usual = model.config._attn_implementation
    calls: list[LayerCall] = []
    tokens = torch.zeros((1, 2), dtype=torch.long, device=model.device)
    try:
        model.set_attn_implementation(PROBE_ATTENTION)
        with torch.inference_mode():
            model(input_ids=tokens, position_ids=torch.tensor([[0, 1]], device=model.device), use_cache=False,
                  logits_to_keep=1, probe=calls)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise _unsupported(model, f"a forward with a plan fails ({error})") from error
    finally:
        model.set_attn_implementation(usual)
    return calls


def _probe_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    probe: list[LayerCall] | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Records the call; what it returns has the right shape and no meaning, `[1, T, Hq, D]`."""
    if probe is None:
        raise ValueError("its layers do not hand a plan on")
    if attention_mask is not None:
        raise ValueError("its layers bring a mask of their own")
    if keywords.get("is_causal", getattr(module, "is_causal", True)) is False:
        raise ValueError("its attention is not causal")
    given = sorted(name for name, value in keywords.items() if name not in KNOWN_KEYWORDS and value is not None)
    if given:
        raise ValueError(f"its layers ask attention for {', '.join(given)}, which no backend knows")
    probe.append(LayerCall(
        int(module.layer_idx),  # type: ignore[arg-type]
        (query.shape[1], query.shape[3]), (key.shape[1], key.shape[3]), (value.shape[1], value.shape[3]),
        keywords.get("sliding_window"), keywords.get("softcap"), keywords.get("s_aux") is not None,
    ))
    width = value.shape[3]
    return query.new_zeros((query.shape[0], query.shape[2], query.shape[1], width)), None


def _unsupported(model: Any, reason: str) -> ModelUnsupported:
    return ModelUnsupported(f"a model of type {model.config.model_type!r} cannot be packed: {reason}.")
