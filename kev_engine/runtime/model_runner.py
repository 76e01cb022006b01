"""ModelRunner: one StepPlan in, the logits of its sampled rows out. The only place that calls the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kev_engine.adapters.router import Router
from kev_engine.attention.base import AttentionBackend, Execution
from kev_engine.attention.dense import DenseBackend
from kev_engine.cache.storage import KVStorage
from kev_engine.isolation.faults import Fault
from kev_engine.isolation.plan import StepPlan


@dataclass(frozen=True, eq=False)
class ModelRunner:
    """A loaded model, the backend that attends for it and the router that applies its adapters."""

    model: torch.nn.Module
    backend: AttentionBackend
    router: Router
    windows: frozenset[int | None]
    device: torch.device

    @torch.inference_mode()
    def run(self, plan: StepPlan, storage: KVStorage) -> torch.Tensor:
        """Execute the plan on this storage and return the logits `[R, V]` of its sampled rows."""
        for copy in plan.copies:
            storage.copy_block(copy.source, copy.target, copy.num_tokens)
        state = self.backend.prepare(plan, storage, self.windows)
        execution = Execution(self.backend, storage, self._tensor(plan.slot_mapping), state)
        with self.router.step(plan.adapter_ids, plan.sample_rows):
            output = self.model(
                input_ids=self._tensor(plan.input_ids)[None],
                position_ids=self._tensor(plan.position_ids)[None],
                plan=execution,
                use_cache=False,
                logits_to_keep=self._tensor(plan.sample_rows),
            )
        logits: torch.Tensor = output.logits[0]  # [R, V]
        return logits

    def _tensor(self, array: object) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def dense(self, fault: Fault | None = None) -> ModelRunner:
        """The same model behind the oracle, or behind an oracle that is broken on purpose."""
        return replace(self, backend=DenseBackend(fault))
