"""How far adapters move a model: one prompt under the base and under every adapter, in one mixed pass.

    measure(runner, shape, token_ids, adapters, block_size) -> (AdapterEffect, …)
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import numpy as np
import torch

from kev_engine.adapters.pool import AdapterVersion
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence

PROMPT = "What do you do on a rainy day, and why?"
NOISE_MARGIN = 4.0
"""An adapter whose logits move by no more than this many times the noise moves nothing."""


@dataclass(frozen=True)
class AdapterEffect:
    """How far one adapter moved the logits of the prompt against the base, in one and the same forward.

    `max_abs` is the largest |Δlogit| at any position, `changed` the share of positions whose most likely token is
    another one, `noise` the largest |Δlogit| of the base against itself elsewhere in the row. `flaw` is what in the
    file makes it change nothing, if anything does (AdapterWeights.flaw).
    """

    name: str
    version: str
    max_abs: float
    changed: float
    noise: float
    flaw: str | None

    @property
    def is_dead(self) -> bool:
        """Whether it changes nothing."""
        return self.flaw is not None or self.max_abs <= NOISE_MARGIN * self.noise


def measure(
    runner: ModelRunner, shape: KVShape, token_ids: Many[int], adapters: Mapping[str, AdapterVersion], block_size: int,
) -> tuple[AdapterEffect, ...]:
    """The effect of each adapter on the prompt `token_ids`; at most as many adapters as the pool holds at a time."""
    names = [None, *adapters, None]
    blocks = len(names) * -(-(len(token_ids) + 1) // block_size) + 1
    scheduler = Scheduler(BlockPool(blocks, block_size), token_budget=len(names) * len(token_ids))
    scheduler.submit(
        Sequence(list(token_ids), 1, 0 if name is None else adapters[name].adapter_id, id=index)
        for index, name in enumerate(names)
    )
    scheduled = scheduler.next_step()
    assert scheduled is not None
    plan = replace(scheduled.plan, sample_rows=np.arange(scheduled.plan.num_tokens, dtype=np.int64))
    logits = runner.run(plan, KVStorage(shape, blocks, block_size, runner.device)).float()
    base, *moved, again = logits.view(len(names), len(token_ids), -1)  # each [T, V]
    noise = _max_abs(again, base)
    return tuple(
        AdapterEffect(
            name, version.version or "", _max_abs(rows, base),
            float((rows.argmax(dim=-1) != base.argmax(dim=-1)).float().mean()), noise,
            version.weights.flaw if version.weights else None,
        )
        for (name, version), rows in zip(adapters.items(), moved, strict=True)
    )


def _max_abs(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).abs().nan_to_num(nan=float("inf")).max())
