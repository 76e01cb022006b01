"""Cells of a mask: opened, closed, shifted, inverted, aligned wrongly, outside the window."""

from __future__ import annotations

from random import Random

import numpy as np

from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import dense
from tests.doctor.faults.edit import Edit, edited, fault, need, place, with_cells
from tests.doctor.right import forbidden
from tests.doctor.rows import form, row


@fault("one cell opened")
def _(random: Random) -> Edit:
    cells = row(random)
    query, key = place(random, ~cells.allowed & cells.live[:, None])
    allowed = cells.allowed.copy()
    allowed[query, key] = True
    if not cells.related[query, key]:
        return with_cells(cells, allowed, "CROSS_SEGMENT_LEAK")
    if cells.layout.position_ids[key] > cells.layout.position_ids[query]:
        return with_cells(cells, allowed, "LEAK_FUTURE")
    # Behind the window; where it is the only cell of its kind, it is a window one wider.
    return with_cells(cells, allowed, "WINDOW_IGNORED", "WINDOW_OFF_BY_ONE")


@fault("one cell opened")
def _(random: Random) -> Edit:
    """In one of two heads."""
    cells = row(random, window=False, meaning="additive", consumers=("sdpa", "hf", "mha"))
    need(cells.form.axes > 2)
    query, key = place(random, ~cells.related & cells.live[:, None])
    values = np.broadcast_to(np.where(cells.allowed, 0.0, float(cells.form.fill)), (2, cells.total, cells.total)).copy()
    values[random.randrange(2), query, key] = 0.0
    need(cells.form.axes == 4 or cells.form.consumer == "mha")
    whole = cells.form.handed_over(values if cells.form.axes == 3 else values[None]) | {"num_heads": 2}
    twice = cells.form.handed_over(np.broadcast_to(np.where(cells.allowed, 0.0, float(cells.form.fill)), (
        values.shape if cells.form.axes == 3 else values[None].shape))) | {"num_heads": 2}
    return Edit(cells.batch() | twice, cells.batch() | whole, ("CROSS_SEGMENT_LEAK",))


@fault("one cell closed")
def _(random: Random) -> Edit:
    cells = row(random)
    query, key = place(random, cells.allowed & cells.live[:, None])
    allowed = cells.allowed.copy()
    allowed[query, key] = False
    # In a small row the cell may be all that a window one narrower leaves out.
    return with_cells(cells, allowed, "HIDDEN_KEYS", "WINDOW_OFF_BY_ONE")


@fault("one query that reads nothing")
def _(random: Random) -> Edit:
    cells = row(random)
    need(cells.live.sum() > 1)
    query = random.choice(np.flatnonzero(cells.live).tolist())
    allowed = cells.allowed.copy()
    allowed[query] = False
    return with_cells(cells, allowed, "ROW_EMPTY")


@fault("padding that is read")
def _(random: Random) -> Edit:
    cells = row(random, pads=True)
    allowed = cells.allowed.copy()
    query, key = place(random, cells.live[:, None] & ~cells.live[None])
    allowed[query, key] = True
    return with_cells(cells, allowed, "CROSS_SEGMENT_LEAK")


@fault("a border shifted by one in the mask")
def _(random: Random) -> Edit:
    cells = row(random, least=2, flat=True, window=False, both_ways=False, pads=False)
    lengths = list(cells.layout.lengths)
    border = random.randrange(len(lengths) - 1)
    near, far = random.choice(((border, border + 1), (border + 1, border)))
    need(lengths[near] > 1)
    lengths[near] -= 1
    lengths[far] += 1
    return with_cells(cells, dense(pack(lengths)), "CROSS_SEGMENT_LEAK")


@fault("a branch that reads another")
def _(random: Random) -> Edit:
    """One entry of `parents` taken for another: all cells of a wrong ancestor."""
    cells = row(random, least=3, window=False, both_ways=False, pads=False)
    parents = list(cells.layout.parents)
    child = random.randrange(1, len(parents))
    strangers = [k for k in range(child) if k not in cells.layout.lineage(child)]
    need(strangers)
    parents[child] = random.choice(strangers)
    return with_cells(cells, cells.allowed | dense(pack(cells.layout.lengths, parents)) & cells.live[:, None],
                      "CROSS_SEGMENT_LEAK")


@fault("a shared context that is hidden")
def _(random: Random) -> Edit:
    cells = row(random, least=2, window=False, pads=False)
    child = random.choice([k for k, parent in enumerate(cells.layout.parents) if parent is not None] or [-1])
    need(child >= 0)
    allowed = cells.allowed.copy()
    owner = cells.layout.segment_ids
    allowed[np.ix_(owner == child, owner == cells.layout.parents[child])] = False
    return with_cells(cells, allowed, "HIDDEN_KEYS")


@fault("mask inverted")
def _(random: Random) -> Edit:
    cells = row(random, least=2)
    return with_cells(cells, ~cells.allowed, "MASK_INVERTED")


@fault("causal triangle dropped")
def _(random: Random) -> Edit:
    cells = row(random, window=False, both_ways=False)
    owner = cells.layout.segment_ids
    allowed = cells.allowed | np.equal(owner[:, None], owner[None])
    need((allowed != cells.allowed)[cells.live].any())
    return with_cells(cells, allowed, "LEAK_FUTURE")


@fault("causal triangle where both directions are wanted")
def _(random: Random) -> Edit:
    cells = row(random, both_ways=True)
    later = np.triu(np.ones_like(cells.allowed), 1) & cells.allowed
    need(later[cells.live].any())
    return with_cells(cells, cells.allowed & ~later, "CAUSAL_UNWANTED")


@fault("causal flag where both directions are wanted")
def _(random: Random) -> Edit:
    total = random.randint(2, 6)
    return edited({"total": total, "want_causal": False, "is_causal": False, "consumer": "sdpa"}, "CAUSAL_UNWANTED",
                  is_causal=True)


@fault("causal flag off")
def _(random: Random) -> Edit:
    total = random.randint(2, 6)
    return edited({"total": total, "is_causal": True, "consumer": "sdpa"}, "CAUSAL_MISSING", is_causal=False)


@fault("causal flag beside a mask")
def _(random: Random) -> Edit:
    cells = row(random, both_ways=False, consumers=("sdpa",))
    return edited(cells.batch(), "CAUSAL_AND_MASK", is_causal=True)


@fault("aligned to the top left")
def _(random: Random) -> Edit:
    queries, past = random.randint(1, 4), random.randint(1, 5)
    keys = queries + past
    way = form(random, consumers=("sdpa", "eager", "mha"))
    batch = {"q_len": queries, "kv_len": keys, "past_length": past}
    right, wrong = (np.tril(np.ones((queries, keys), dtype=bool), shift) for shift in (past, 0))
    return Edit(batch | way.of(right), batch | way.of(wrong), ("ALIGN_TOP_LEFT",))


@fault("aligned to the top left")
def _(random: Random) -> Edit:
    queries, past = random.randint(1, 4), random.randint(1, 5)
    batch = {"cu_seqlens_q": [0, queries], "cu_seqlens_k": [0, queries + past], "is_causal": True, "device": "cuda",
             "consumer": "flash_varlen", "dtype": "float16", "library": "flash-attn 2.6.3"}
    return edited(batch, "ALIGN_TOP_LEFT", library="flash-attn 2.0.4")


@fault("a forbidden cell opened")
def _(random: Random) -> Edit:
    cells, batch = forbidden(random)
    query, key = place(random, ~cells.related)
    allowed = cells.allowed.copy()
    allowed[query, key] = True
    return Edit(batch | cells.form.of(cells.allowed), batch | cells.form.of(allowed), ("FORBIDDEN_CELL",))


@fault("a window one off")
def _(random: Random) -> Edit:
    cells = row(random, window=True, both_ways=False, pads=False)
    width = cells.more["sliding_window"]
    other = width + random.choice((-1, 1))
    need(other > 0)
    allowed = dense(cells.layout, other)
    need((allowed != cells.allowed).any() and (other < width or (allowed != dense(cells.layout)).any()))
    return with_cells(cells, allowed, "WINDOW_OFF_BY_ONE")


@fault("window ignored")
def _(random: Random) -> Edit:
    cells = row(random, window=True, both_ways=False, pads=False)
    allowed = dense(cells.layout)
    need((allowed != cells.allowed).any())
    return with_cells(cells, allowed, "WINDOW_IGNORED")
