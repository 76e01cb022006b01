"""What a backend cannot do with what it was given: masks it does not look at, dtypes it refuses, causality twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from kev_engine.doctor.cells import BoolArray
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.layouts import block_borders, disagreement


def check(facts: Facts) -> Iterator[Finding]:
    batch = facts.batch
    flash = batch.consumer == "flash_varlen" or (
        batch.consumer == "hf" and batch.attn_implementation == "flash_attention_2")
    if batch.consumer == "hf" and flash and facts.dense_mask is not None:
        yield Finding("BACKEND_NO_ARBITRARY_MASK", found=list(facts.dense_mask.shape),
                      facts={"backend": "flash_attention_2"})
    if batch.consumer == "flash_varlen":
        yield from _ignored(facts)
    if flash and batch.dtype not in (None, "float16", "bfloat16") and not (batch.dtype or "").startswith("float8"):
        yield Finding("BACKEND_DTYPE", found=batch.dtype, facts={"dtype": batch.dtype, "device": batch.device})
    elif flash and batch.device is not None and batch.device.split(":")[0] in ("cpu", "mps"):
        yield Finding("BACKEND_DTYPE", found=batch.device, variant="device", facts={"device": batch.device})
    if batch.consumer == "sdpa" and batch.is_causal and (batch.attention_mask is not None or batch.mask_planes):
        yield from _twice(facts)


def _ignored(facts: Facts) -> Iterator[Finding]:
    """A mask handed to a varlen kernel does nothing; that is a fault where it says something else than cu_seqlens."""
    mask = facts.batch.attention_mask
    if mask is None and not facts.batch.mask_planes:
        return
    actual = facts.judged[0] if facts.judged else None
    if facts.dense_mask is not None or facts.batch.mask_planes:
        seen = facts.dense_alone
        if seen is not None and actual is not None:
            if not disagreement(seen, actual.actual, actual.live):
                return
        elif mask is not None and mask.pattern is not None and mask.pattern.layout is None and mask.pattern.inside == 1:
            return
        yield Finding("BACKEND_IGNORES_MASK", facts={"backend": "flash_varlen", "kind": "cells"})
        if seen is not None and block_borders(seen) is None:
            yield Finding("BACKEND_NO_ARBITRARY_MASK", facts={"backend": "flash_varlen"})
        return
    keep = facts.keep
    if keep is None or keep.all() or facts.numbers_segments:
        return
    cu = facts.batch.cu_seqlens or facts.batch.cu_seqlens_q
    if facts.num_rows > 1 and cu is not None and cu[-1] == keep.sum():
        # The padding was taken out before the call.
        return
    line = keep[0]
    if facts.cu is not None and len(line) == facts.total and facts.num_rows == 1:
        end = facts.cu[-1]
        if line[:end].all() or _pads_have_their_own(line, facts.cu):
            return
    yield Finding("BACKEND_IGNORES_MASK", indexes=tuple(np.flatnonzero(~line).tolist()),
                  facts={"backend": "flash_varlen", "kind": "padding"})


def _pads_have_their_own(line: BoolArray, cu: tuple[int, ...]) -> bool:
    """Whether no segment of cu_seqlens mixes kept and padded tokens."""
    return all(line[a:b].all() or not line[a:b].any() for a, b in pairwise(cu))


def _twice(facts: Facts) -> Iterator[Finding]:
    count = None
    if facts.judged:
        judged = facts.judged[0]
        wrong = judged.marks.select("actual", without="should", rows=judged.live)
        missing = judged.marks.select("should", without="actual", rows=judged.live)
        count = wrong.count + missing.count
    yield Finding("CAUSAL_AND_MASK", count=count, facts={"consumer": "scaled_dot_product_attention"})
