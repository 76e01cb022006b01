"""Query heads against key/value heads."""

from __future__ import annotations

from collections.abc import Iterator

from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding


def check(facts: Facts) -> Iterator[Finding]:
    batch = facts.batch
    heads, shared = batch.num_heads, batch.num_kv_heads
    if heads is None or shared is None:
        return
    told = {"heads": heads, "kv_heads": shared}
    if heads % shared:
        yield Finding("GQA_SHAPE", variant="divide", facts=told)
        return
    if batch.head_map is None:
        grouped = heads != shared
        if grouped and ((batch.consumer in ("sdpa", "flex") and batch.enable_gqa is False) or batch.consumer == "mha"):
            yield Finding("GQA_SHAPE", facts=told | {"consumer": batch.consumer})
        return
    if len(batch.head_map) != heads:
        yield Finding("GQA_SHAPE", found=len(batch.head_map), expected=heads, variant="map", facts=told)
        return
    right = [head // (heads // shared) for head in range(heads)]
    if list(batch.head_map) != right:
        yield Finding("GQA_ORDER", found=list(batch.head_map), expected=right, facts=told)
