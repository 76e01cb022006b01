"""Sources against each other: lengths, positions, cu_seqlens and the mask, and which of them the consumer obeys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kev_engine.doctor import consumer as consumers
from kev_engine.doctor.cells import Cells
from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.layouts import block_borders, disagreement, from_borders, position_borders
from kev_engine.doctor.masks import MOST_TOKENS

# Recurrent layers carry a state along the row and look at no mask.
STATE_LAYERS = ("linear", "mamba", "ssm", "recurrent", "rwkv", "conv", "delta", "state", "retention", "lightning",
                "gla", "hyena", "hybrid", "lstm", "gru")


def check(facts: Facts) -> Iterator[Finding]:
    yield from _cu_against_segments(facts)
    yield from _cu_against_mask(facts)
    yield from _positions_against_mask(facts)
    yield from _positions_against_cells(facts)
    yield from _numbers_against_segments(facts)
    yield from _ends_against_segments(facts)
    yield from _layers(facts)


def _live(facts: Facts, total: int, row: int = 0) -> np.ndarray:
    live = np.ones(total, dtype=np.bool_)
    if facts.given is not None and facts.given.num_tokens == total:
        live = (facts.given.owner >= 0) & ~np.isin(facts.given.owner, facts.batch.pad_segments)
    keep = facts.keep_of(row)
    if keep is not None and len(keep) == total and not facts.numbers_segments:
        live &= keep
    return live


def _cu_cells(facts: Facts) -> Cells | None:
    """Causal blocks between the entries of cu_seqlens, where they cover the row."""
    cu, total = facts.cu, facts.total
    if cu is None or total is None or total > MOST_TOKENS or cu[-1] != total or (facts.batch.cu_seqlens is None and (
            facts.batch.cu_seqlens_q is None)):
        return None
    return from_borders(cu, total, "cu_seqlens").visible()


def _cu_against_segments(facts: Facts) -> Iterator[Finding]:
    cells = _cu_cells(facts)
    if cells is None or facts.given is None or any(parent is not None for parent in facts.given.layout.parents):
        return
    count = disagreement(cells, facts.given.visible(), _live(facts, cells.num_keys))
    if count:
        yield Finding("BOUNDARY_CONFLICT", variant="cu", found=list(facts.cu or ()),
                      expected=[0, *(end for _, end in facts.given.intervals.values())],
                      facts={"one": "cu_seqlens", "other": facts.given.source, "cells": count,
                             "obeyed": _obeyed(facts)})


def _cu_against_mask(facts: Facts) -> Iterator[Finding]:
    cells, mask = _cu_cells(facts), facts.batch.attention_mask
    if cells is None or mask is None or facts.num_rows != 1:
        return
    if facts.dense_mask is not None:
        seen = facts.dense_alone
        if facts.batch.consumer == "flash_varlen":
            # A kernel that looks at no mask: `backend` says so.
            return
    else:
        keep = facts.keep_of(0)
        if keep is None or len(keep) != cells.num_keys or facts.numbers_segments:
            return
        if facts.batch.consumer == "flash_varlen" or consumers.takes_boundaries(facts.batch, keep):
            return
        seen = consumers.columns(consumers.rectangle(cells.num_keys, cells.num_keys), keep)
    if seen is None or (seen.num_queries, seen.num_keys) != (cells.num_queries, cells.num_keys):
        return
    live = _live(facts, cells.num_keys)
    count = disagreement(cells, seen, live)
    if count:
        yield Finding("BOUNDARY_CONFLICT", variant="cu",
                      facts={"one": "cu_seqlens", "other": "attention_mask", "cells": count, "obeyed": _obeyed(facts)})


def _positions_against_mask(facts: Facts) -> Iterator[Finding]:
    """Positions that restart beside a mask that makes the consumer take the row for one segment."""
    if facts.batch.consumer != "hf" or facts.row_mask is None or facts.numbers_segments:
        return
    for judged in facts.judged:
        positions = facts.positions_of(judged.row)
        if positions is None or not facts.restarts_in(judged.row) or judged.source == "cu_seqlens":
            continue
        borders = position_borders(positions)
        wanted = from_borders(borders, len(positions), "position_ids").visible()
        live = _live(facts, wanted.num_keys, judged.row)
        keep = facts.keep_of(judged.row)
        wanted = wanted if keep is None else consumers.columns(wanted, keep)
        count = disagreement(judged.actual, wanted, live)
        if count:
            yield Finding("BOUNDARY_CONFLICT", variant="positions", indexes=tuple(borders[1:-1]),
                          facts={"one": "position_ids", "other": "attention_mask", "cells": count,
                                 "obeyed": judged.source, "segments": len(borders) - 1})


def _positions_against_cells(facts: Facts) -> Iterator[Finding]:
    """Positions that restart beside a mask of clean blocks with other borders, where nobody said which are meant."""
    seen = facts.dense_alone
    if facts.given is not None or facts.positions is None or not facts.restarts or seen is None:
        return
    borders = position_borders(facts.positions[0])
    if block_borders(seen) in (None, borders) or len(facts.positions[0]) != seen.num_keys:
        return
    count = disagreement(seen, from_borders(borders, seen.num_keys, "position_ids").visible(),
                         _live(facts, seen.num_keys))
    yield Finding("BOUNDARY_CONFLICT", variant="cu", indexes=tuple(borders[1:-1]),
                  facts={"one": "position_ids", "other": "attention_mask", "cells": count, "obeyed": _obeyed(facts)})


def _ends_against_segments(facts: Facts) -> Iterator[Finding]:
    """Segments that start with the EOS of the text before them: every border lies one token early."""
    batch, segments, ids = facts.batch, facts.segments, facts.ids
    if segments is None or ids is None or len(ids) != 1 or batch.eos_token_id in (None, batch.bos_token_id):
        return
    if segments.num_tokens != ids.shape[1] or segments.source not in ("lengths", "segments", "cu_seqlens"):
        return
    line = ids[0]
    starts = [start for start, _ in segments.intervals.values()]
    ends = line == batch.eos_token_id
    wrong = [start for start in starts if start > 0 and ends[start] and not ends[start - 1]]
    if wrong and not ends[starts[0]] and batch.eos_token_id != batch.pad_token_id:
        yield Finding("BOUNDARY_CONFLICT", variant="eos", indexes=tuple(wrong),
                      facts={"one": segments.source, "place": wrong[0], "obeyed": _obeyed(facts)})


def _numbers_against_segments(facts: Facts) -> Iterator[Finding]:
    segments = facts.segments
    if not facts.numbers_segments or facts.row_mask is None or segments is None:
        return
    line = facts.row_mask.line(0)
    if len(line) != segments.num_tokens or segments.source == "attention_mask":
        return
    live = _live(facts, len(line))
    owner = segments.owner
    both = live[1:] & live[:-1]
    wrong = np.flatnonzero(((np.diff(line) != 0) != (np.diff(owner) != 0)) & both) + 1
    if wrong.size:
        yield Finding("BOUNDARY_CONFLICT", variant="numbers", indexes=tuple(wrong.tolist()),
                      facts={"one": "attention_mask", "other": segments.source, "place": int(wrong[0]),
                             "obeyed": _obeyed(facts)})


def _obeyed(facts: Facts) -> str:
    """The source the named consumer goes by."""
    if facts.judged:
        return facts.judged[0].source
    return "cu_seqlens" if facts.batch.consumer == "flash_varlen" else "unknown without a consumer"


def _layers(facts: Facts) -> Iterator[Finding]:
    state = [index for index, kind in enumerate(facts.batch.layer_types)
             if any(word in kind.lower() for word in STATE_LAYERS)]
    if state and facts.segments_kept > 1 and facts.batch.cu_seqlens is None and facts.batch.cu_seqlens_q is None:
        yield Finding("NOT_PACKABLE", found=facts.batch.layer_types[state[0]],
                      facts={"layers": state, "kind": facts.batch.layer_types[state[0]], "num_layers": len(state)})
