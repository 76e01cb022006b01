"""Adapter facts: scaling, names, rows, effect."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kev_engine.doctor.batch import Adapter
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding

# The name under which the base model answers.
BASE = "__base__"


def check(facts: Facts) -> Iterator[Finding]:
    adapter = facts.batch.adapter
    if adapter is None:
        return
    yield from _scale(adapter)
    if adapter.matched_modules == 0:
        yield Finding("ADAPTER_NOTHING_MATCHED", found=0)
    if adapter.b_is_zero:
        yield Finding("ADAPTER_NO_EFFECT", "warning")
    elif adapter.lora_alpha == 0:
        yield Finding("ADAPTER_NO_EFFECT", "warning", variant="alpha")
    yield from _rows(facts, adapter)
    yield from _tokens(facts, adapter)


def _scale(adapter: Adapter) -> Iterator[Finding]:
    if adapter.alpha_missing:
        yield Finding("ADAPTER_ALPHA_MISSING", facts={"r": adapter.r, "given": adapter.given_scaling})
    if adapter.r is None or adapter.lora_alpha is None or adapter.given_scaling is None:
        return
    divisor = math.sqrt(adapter.r) if adapter.use_rslora else adapter.r
    right = adapter.lora_alpha / divisor * adapter.weight
    if not math.isclose(right, adapter.given_scaling, rel_tol=1e-6, abs_tol=1e-12):
        yield Finding("ADAPTER_SCALE", found=adapter.given_scaling, expected=right,
                      facts={"formula": "alpha / sqrt(r)" if adapter.use_rslora else "alpha / r",
                             "alpha": adapter.lora_alpha, "r": adapter.r, "weight": adapter.weight})


def _rows(facts: Facts, adapter: Adapter) -> Iterator[Finding]:
    names = adapter.names
    if names is None:
        return
    if adapter.loaded is not None:
        for name in dict.fromkeys(names):
            if name is not None and name != BASE and name not in adapter.loaded:
                yield Finding("ADAPTER_UNKNOWN", found=name, facts={"loaded": list(adapter.loaded)})
    rows = adapter.rows
    if rows is None and facts.ids is not None and facts.ids.shape[0] > 1:
        rows = len(facts.ids)
        if adapter.num_beams and len(names) == rows * adapter.num_beams:
            return
    if rows is not None and len(names) != rows:
        yield Finding("ADAPTER_COUNT", found=len(names), expected=rows, facts={"beams": adapter.num_beams})


def _tokens(facts: Facts, adapter: Adapter) -> Iterator[Finding]:
    """The adapter of each token against that of its segment."""
    used, meant, given = adapter.token_names, adapter.names, facts.given
    if used is None or meant is None or given is None or len(meant) <= max(given.names):
        return
    if len(used) != given.num_tokens:
        yield Finding("LENGTH_MISMATCH", found=len(used), expected=given.num_tokens,
                      facts={"key": "adapter.token_names"})
        return
    right = [name if owner < 0 else meant[owner] for name, owner in zip(used, given.owner.tolist(), strict=True)]
    bad = [place for place in range(len(used)) if (used[place] or BASE) != (right[place] or BASE)]
    if bad:
        first = bad[0]
        yield Finding("ADAPTER_MISROUTED", indexes=tuple(bad), expected=right, facts={
            "token": first, "segment": int(given.owner[first]), "used": used[first] or BASE,
            "meant": right[first] or BASE})
