"""Report: the verdict on a batch, and `diagnose`, which makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kev_engine.doctor.batch import Batch, read_batch
from kev_engine.doctor.cells import Cells
from kev_engine.doctor.checks import (
    adapter,
    backend,
    cells,
    heads,
    labels,
    mask,
    padding,
    positions,
    sources,
    tokens,
    varlen,
)
from kev_engine.doctor.consumer import is_float, mask_is_01
from kev_engine.doctor.facts import MOST_CELLS, Facts
from kev_engine.doctor.finding import RANK, Assumption, Finding, Pair
from kev_engine.doctor.layouts import Segmentation
from kev_engine.doctor.masks import MOST_TOKENS
from kev_engine.doctor.repair import repairs

__all__ = ["Assumption", "Finding", "Pair", "Report", "diagnose"]

CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    sources.check, mask.check, cells.check, backend.check, positions.check, varlen.check, padding.check, tokens.check,
    labels.check, heads.check, adapter.check,
)


@dataclass(frozen=True, eq=False)
class Report:
    """What is wrong with a batch, the worst first, and what had to be assumed.

    `should` and `will` are the cells of the first row that ought to be and that will be allowed, or None where they
    cannot be known; `segments` says whose tokens they are. `facts` holds the batch and every row's cells.
    """

    findings: tuple[Finding, ...]
    assumed: tuple[Assumption, ...]
    segments: Segmentation | None = None
    should: Cells | None = None
    will: Cells | None = None
    facts: Facts | None = None

    @cached_property
    def repairs(self) -> dict[str, Any]:
        """The corrected values by key, where there is exactly one right; see `repair.repairs`."""
        return {} if self.facts is None else repairs(self.facts, self.findings)

    @property
    def verdict(self) -> str:
        """`ok`, `note`, `warning` or `error`: the worst level found."""
        return max((finding.level for finding in self.findings), key=RANK.__getitem__, default="ok")

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(finding.code for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The report as docs/doctor.md writes it: only JSON types."""
        return {"verdict": self.verdict, "assumed": [str(entry) for entry in self.assumed],
                "findings": [finding.as_json() for finding in self.findings]}


def diagnose(batch: Batch | Mapping[str, Any], folder: Path | None = None) -> Report:
    """The report on a batch: a description with the keys of docs/doctor.md, or a Batch already read.

    Arrays may be lists, numpy arrays or tensors; mask files named in it are looked up in `folder`. Raises InvalidField
    naming the key that cannot be used.
    """
    facts = Facts(batch if isinstance(batch, Batch) else read_batch(batch, folder))
    found = [finding for check in CHECKS for finding in check(facts)]
    found.sort(key=lambda finding: -RANK[finding.level])
    judged = facts.judged[0] if facts.judged else None
    return Report(
        tuple(found), tuple(_assumptions(facts)), facts.segments,
        None if judged is None else judged.expected, None if judged is None else judged.actual, facts,
    )


def _assumptions(facts: Facts) -> Iterator[Assumption]:
    batch = facts.batch
    yield from _about_mask(facts)
    if facts.shape is not None and max(facts.shape) > MOST_TOKENS:
        yield Assumption("too_long", {"cells": facts.shape[0] * facts.shape[1]})
    elif facts.too_ragged:
        yield Assumption("too_ragged")
    elif batch.attention_mask is not None and batch.attention_mask.num_cells > MOST_CELLS:
        yield Assumption("too_long", {"cells": batch.attention_mask.num_cells})
    elif facts.judged and facts.given is None and not facts.rectangular:
        found = facts.judged[0].segments
        source = "total" if found is None else found.source
        yield Assumption("one_segment") if source == "total" else Assumption("segments", {"source": source})
    if facts.given_end is not None and facts.total is not None and facts.given_end < facts.total:
        yield Assumption("tail" if facts.num_rows == 1 else "rows", {"end": facts.given_end, "rows": facts.num_rows})
    if facts.shape is not None and not facts.judged and batch.attention_mask is None and facts.given is not None:
        if batch.consumer is None:
            yield Assumption("no_consumer")
        elif batch.consumer in ("sdpa", "mha", "flex"):
            yield Assumption("no_mask_consumer", {"consumer": batch.consumer})
    if facts.judged and batch.consumer == "hf":
        if not batch.want_causal and batch.is_causal is None and facts.dense_mask is None:
            yield Assumption("causal_model")
        if batch.library is None and facts.judged[0].source == "position_ids":
            yield Assumption("version")
    if facts.judged and facts.window is None and batch.window is not None and batch.consumer in ("hf", "flash_varlen"):
        yield Assumption("window_model", {"window": batch.window})
    if batch.bos_token_id is not None and batch.eos_token_id is not None and facts.segments is None and (
            facts.ids is not None and _eos_inside(facts.ids, batch.eos_token_id)):
        yield Assumption("eos")
    grouped = batch.num_heads and batch.num_kv_heads and batch.num_heads > batch.num_kv_heads
    if grouped and batch.consumer == "sdpa" and batch.enable_gqa is None and batch.head_map is None:
        yield Assumption("gqa", {"consumer": "sdpa"})
    labels = batch.labels if batch.labels_shifted and facts.segments is None else None
    if labels is not None and labels.reshape(-1)[-1] != -100:
        yield Assumption("labels_end")


def _eos_inside(ids: Any, eos: int) -> bool:
    return bool(np.equal(ids[:, :-1], eos).any())


def _about_mask(facts: Facts) -> Iterator[Assumption]:
    batch, given = facts.batch, facts.batch.attention_mask
    if given is None or given.num_cells > MOST_CELLS:
        return
    if batch.mask_meaning is None and not facts.numbers_segments:
        if facts.dense_mask is not None:
            depends = batch.consumer is None and is_float(batch.mask_dtype) and mask_is_01(given.distinct())
            names = {"keep": "mask_keep", "additive": "mask_added", "block": "mask_block"}
            yield Assumption("mask_depends" if depends else names[facts.meaning])
        else:
            yield Assumption("mask_keep")
    if len(given.shape) == 2 and batch.q_len is None and batch.input_ids is None and given.shape[0] > 1:
        yield Assumption("mask_rows" if facts.row_mask is not None else "mask_square")
    if facts.row_mask is not None and batch.consumer is None and facts.judged:
        yield Assumption("hf")
    if facts.row_mask is not None and batch.consumer in ("sdpa", "mha", "eager", "flex"):
        yield Assumption("mask_row_consumer", {"consumer": batch.consumer})
