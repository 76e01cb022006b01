"""ModelRunner: one StepPlan in, the logits of its sampled rows out. The only place that calls the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kev_engine.adapters.router import Router
from kev_engine.attention.base import AttentionBackend, Execution
from kev_engine.attention.dense import DenseBackend
from kev_engine.cache.storage import KVStorage
from kev_engine.isolation.faults import Fault
from kev_engine.isolation.layout import IntArray
from kev_engine.isolation.plan import StepPlan

HEAD_ROWS = 256
"""Rows whose logits are held at once where a prompt is scored: 50 MB in fp32 for 49,152 tokens."""


@dataclass(frozen=True, eq=False)
class ModelRunner:
    """A loaded model, the backend that attends for it and the router that applies its adapters."""

    model: torch.nn.Module
    backend: AttentionBackend
    router: Router
    windows: frozenset[int | None]
    device: torch.device

    @torch.inference_mode()
    def run(
        self, plan: StepPlan, storage: KVStorage, on_layer: Callable[[int], None] | None = None,
        decode_all: bool = False,
    ) -> torch.Tensor:
        """Execute the plan on this storage and return the logits `[R, V]` of its sampled rows.

        `on_layer` is told the number of each layer that begins. Of the other rows the last layer need not give what
        nobody reads; `decode_all` if somebody does.
        """
        for copy in plan.copies:
            storage.copy_block(copy.source, copy.target, copy.num_tokens)
        state = self.backend.prepare(plan, storage, self.windows)
        sampled = self._tensor(plan.sample_rows)
        execution = Execution(
            self.backend, storage, self._tensor(plan.slot_mapping), state, None if decode_all else sampled, on_layer
        )
        with self.router.step(plan.adapter_ids, plan.sample_rows):
            output = self.model(
                input_ids=self._tensor(plan.input_ids)[None],
                position_ids=self._tensor(plan.position_ids)[None],
                plan=execution,
                use_cache=False,
                logits_to_keep=sampled,
            )
        logits: torch.Tensor = output.logits[0]  # [R, V]
        return logits

    @torch.inference_mode()
    def run_scored(
        self, plan: StepPlan, storage: KVStorage, rows: IntArray, targets: IntArray,
        on_layer: Callable[[int], None] | None = None,
    ) -> tuple[torch.Tensor, list[float]]:
        """What `run` returns, and the natural-log probability that row `rows[n]` of the step gives token `targets[n]`.

        The same forward; only the head is called again, for a few rows at a time. Not finite where the logits are not.
        """
        decoded: list[Any] = []
        decoder: Any = self.model.get_decoder()  # type: ignore[operator]
        handle = decoder.register_forward_hook(lambda module, inputs, output: decoded.append(output))
        try:
            logits = self.run(plan, storage, on_layer, decode_all=True)
        finally:
            handle.remove()
        scores: list[float] = []
        for start in range(0, len(rows), HEAD_ROWS):
            part = slice(start, start + HEAD_ROWS)
            kept, where = np.unique(rows[part], return_inverse=True)
            given = self._head(decoded[0], plan, kept)  # [kept, V]
            at = self._tensor(where), self._tensor(targets[part])
            scores += (given[at] - given.logsumexp(dim=-1)[at[0]]).tolist()
        return logits, scores

    def _head(self, decoded: Any, plan: StepPlan, rows: IntArray) -> torch.Tensor:
        """The logits of these rows of a decoded step, `[R, V]` in fp32: the model itself, its decoder left out."""
        output = replace(decoded, last_hidden_state=decoded.last_hidden_state[:, self._tensor(rows)])
        with self.router.step(plan.adapter_ids, rows), _without_decoder(self.model, output):
            logits: torch.Tensor = self.model(input_ids=None, use_cache=False).logits[0]
        return logits.float()

    def _tensor(self, array: object) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def dense(self, fault: Fault | None = None) -> ModelRunner:
        """The same model behind the oracle, or behind an oracle that is broken on purpose."""
        return replace(self, backend=DenseBackend(fault))


class _Decoded(torch.nn.Module):
    """Stands in for a decoder whose output is known."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, **keywords: object) -> Any:
        return self.output


@contextmanager
def _without_decoder(model: Any, output: Any) -> Iterator[None]:
    """A block in which the model is only what follows its decoder: the head, and in some families a scaling."""
    name = model.base_model_prefix
    decoder = getattr(model, name)
    setattr(model, name, _Decoded(output))
    try:
        yield
    finally:
        setattr(model, name, decoder)
