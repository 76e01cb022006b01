"""prepare: the same model with faster modules. Each rewriting is judged by what it computes, never by a name.

What a module received in one short forward is given to the module and to what would take its place; where the results
differ by more than TOLERANCE of the largest number, the module stays as it is. Names and weights stay, so adapters find
their modules.

* products of few rows by the kernels, or weights first (products.py);
* norms: an RMSNorm in one operator instead of six (norm.py);
* attention: query, key and value as one product, rotated together; feed-forward: gate and up as one;
  layers: two calls, or their parts called directly (fused.py).

`python -m benchmarks.step` measures a step; docs/decisions.md keeps the log of what won and what did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kev_engine.models.fused import FusedAttention, FusedFeedForward, FusedLayer
from kev_engine.models.mapping import MappedWeights
from kev_engine.models.norm import OneStepNorm
from kev_engine.models.products import LeanLinear
from kev_engine.native.kernels import Kernels

TOLERANCE = 1e-5
"""Largest difference between a rewriting and the original, by the largest number of what the original gave."""
ATTENTION = "kev_prepare"
POSITIONS = (0, 3, 11)
"""Of the tokens of the forward whose inputs are kept, and the last the model has: what depends on them must be seen."""


@dataclass(frozen=True, eq=False)
class Call:
    """What one module received and gave."""

    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any


@dataclass(frozen=True, eq=False)
class Attended:
    """What one attention function received: query, key and value, and the keywords that are not the caller's own."""

    tensors: tuple[torch.Tensor, ...]
    keywords: dict[str, Any]


def prepare(
    model: Any, kernels: Kernels | None = None, mapped: MappedWeights | None = None
) -> Mapping[str, int]:
    """Rewrite the modules of `model` in place; how many of each kind were rewritten.

    Only in fp32 on the CPU, where the reasons hold; elsewhere nothing is changed. Weights that were copied into a joint
    one are given back where they lie in a `mapped` file.
    """
    parameter = next(model.parameters())
    if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        return {}
    return _Preparation(model, kernels, mapped or MappedWeights()).run()


class _Preparation:
    def __init__(self, model: Any, kernels: Kernels | None, mapped: MappedWeights) -> None:
        self.model = model
        self.kernels = kernels
        self.mapped = mapped
        self.done: Counter[str] = Counter()
        self.attended: list[Attended] = []

    @torch.inference_mode(False)
    @torch.no_grad()
    def run(self) -> Mapping[str, int]:
        from transformers import AttentionInterface

        AttentionInterface.register(ATTENTION, self._attend)
        usual = self.model.config._attn_implementation
        self.model.set_attn_implementation(ATTENTION)
        try:
            calls = self._record()
            # What is made of other modules comes after them, so that its proof is of what will run.
            for name, module in reversed(list(self.model.named_modules())):
                if module in calls:
                    self._rewrite(name, module, calls[module])
        finally:
            self.model.set_attn_implementation(usual)
        return self.done

    def _record(self) -> dict[nn.Module, Call]:
        """The last call of every module in one forward."""
        calls: dict[nn.Module, Call] = {}

        def keep(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            calls[module] = Call(inputs, keywords, output)

        handles = [
            module.register_forward_hook(keep, with_kwargs=True) for module in self.model.modules()
            if _kind(module) is not None
        ]
        try:
            last = int(getattr(self.model.config, "max_position_embeddings", None) or 1 << 14) - 1
            positions = torch.tensor([[*POSITIONS, last]])
            ids = torch.arange(positions.numel())[None] % self.model.config.vocab_size
            self.model(input_ids=ids, position_ids=positions, use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
        return calls

    def _attend(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any,
        **keywords: Any,
    ) -> tuple[torch.Tensor, None]:
        """Records what arrives; gives a mixture that every number of it can be seen in, `[1, T, Hq, D]`."""
        self.attended.append(Attended((query, key, value), keywords))
        groups = query.shape[1] // key.shape[1]
        mixed = query - 2 * key.repeat_interleave(groups, 1) + 3 * value.repeat_interleave(groups, 1)
        return mixed.transpose(1, 2), None

    def _rewrite(self, name: str, module: nn.Module, call: Call) -> None:
        kind = _kind(module)
        if kind is LeanLinear or kind is OneStepNorm:
            rewritten: nn.Module | None = (
                LeanLinear(module, self.kernels) if isinstance(module, nn.Linear) else _one_step(module, self.kernels)
            )
            if rewritten is not None and self._is_same(rewritten, call):
                self.model.set_submodule(name, rewritten)
                self.done[type(rewritten).__name__] += 1
            return
        before, children, weights = module.forward, dict(module._modules), [*module.parameters()]
        forward: Callable[..., Any]
        if kind is FusedAttention:
            constants = self._constants(module, call)
            forward = FusedAttention(module, constants, self.kernels)
        elif kind is FusedLayer:
            forward = FusedLayer(module, self.kernels)
        else:
            forward = FusedFeedForward(module, self.kernels)
        if self._is_same(forward, call):
            module.forward = forward
            self.done[type(forward).__name__] += 1
        else:
            module.forward = before
            module._modules.clear()
            module._modules.update(children)
        kept = {weight.data_ptr() for weight in module.parameters()}
        for weight in weights:
            if weight.data_ptr() not in kept:
                self.mapped.give_back(weight)

    def _constants(self, module: nn.Module, call: Call) -> dict[str, Any]:
        """The keywords a module hands to its attention function beyond those it was called with."""
        self.attended.clear()
        module(*call.inputs, **call.keywords)
        return {
            key: value for key, value in self.attended[-1].keywords.items() if key not in call.keywords
        }

    def _is_same(self, forward: Callable[..., Any], call: Call) -> bool:
        """Whether this gives what the call gave."""
        self.attended.clear()
        found: Any = None
        with suppress(TypeError, RuntimeError, ValueError, AttributeError):
            found = forward(*call.inputs, **call.keywords)
        if isinstance(call.output, tuple):
            found = found[0] if isinstance(found, tuple) else None
            return found is not None and _is_close(found, call.output[0])
        return found is not None and _is_close(found, call.output)


def _kind(module: nn.Module) -> type | None:
    """What might take the module's place."""
    if type(module) is nn.Linear:
        return LeanLinear
    if _one_step(module, None) is not None:
        return OneStepNorm
    if FusedAttention.can_build(module):
        return FusedAttention
    return next((kind for kind in (FusedFeedForward, FusedLayer) if kind.can_build(module)), None)


def _one_step(module: nn.Module, kernels: Kernels | None) -> OneStepNorm | None:
    weights = dict(module.named_parameters())
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if weights.keys() == {"weight"} and weights["weight"].ndim == 1 and isinstance(eps, float):
        return OneStepNorm(weights["weight"], eps, kernels)
    return None


def _is_close(found: torch.Tensor, right: torch.Tensor) -> bool:
    return found.shape == right.shape and bool((found - right).abs().max() <= TOLERANCE * right.abs().max())
