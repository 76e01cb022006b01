"""cu_seqlens and max_seqlen: the arrays of a varlen kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from kev_engine.doctor.facts import Facts
from kev_engine.doctor.finding import Finding
from kev_engine.doctor.masks import MOST_TOKENS


def check(facts: Facts) -> Iterator[Finding]:
    batch = facts.batch
    if batch.cu_seqlens is not None:
        yield from _one(facts, "cu_seqlens", batch.cu_seqlens, _tokens(facts, batch.cu_seqlens))
        yield from _longest(batch.cu_seqlens, batch.max_seqlen)
    if batch.cu_seqlens_q is not None and batch.cu_seqlens_k is not None:
        yield from _mismatch(facts, batch.cu_seqlens_q, batch.cu_seqlens_k)
        own = batch.cu_seqlens_q == batch.cu_seqlens_k
        queries = batch.q_len if batch.q_len is not None else _tokens(facts, batch.cu_seqlens_q)
        yield from _one(facts, "cu_seqlens_q", batch.cu_seqlens_q, queries)
        if not own:
            yield from _one(facts, "cu_seqlens_k", batch.cu_seqlens_k, batch.kv_len)
        yield from _longest(batch.cu_seqlens_q, batch.max_seqlen)
    if batch.cu_dtype not in (None, "int32"):
        yield Finding("CU_DTYPE", found=batch.cu_dtype, expected="int32")


def _tokens(facts: Facts, cu: tuple[int, ...]) -> int | None:
    """The tokens that boundaries run over: those of the row, or of several rows, with or without their padding."""
    if facts.total is None or facts.num_rows == 1:
        return facts.total
    whole = facts.num_rows * facts.total
    return whole if facts.real is None or cu[-1] == whole else int(facts.real.sum())


def _right(facts: Facts) -> list[int] | None:
    """The boundaries that follow from the segments given."""
    if facts.given is None:
        return None
    given = facts.given
    return [0, *(end for _, end in given.intervals.values())]


def _steps(cu: tuple[int, ...]) -> list[int]:
    return [after - before for before, after in pairwise(cu)]


def _one(facts: Facts, key: str, cu: tuple[int, ...], total: int | None) -> Iterator[Finding]:
    right = _right(facts) if key != "cu_seqlens_k" else None
    told = {"key": key, "first": cu[0], "last": cu[-1], "total": total}
    falls = [index + 1 for index, step in enumerate(_steps(cu)) if step < 0]
    if cu[0] > 0:
        yield Finding("CU_NO_LEADING_ZERO", expected=right or [0, *cu], facts=told)
    if falls or cu[0] < 0:
        place = falls[0] if falls else 0
        ordered = sorted(cu)
        sound = ordered[0] == 0 and total in (None, ordered[-1]) and len(set(ordered)) == len(ordered)
        yield Finding("CU_NEGATIVE", expected=right or (ordered if sound else None),
                      facts=told | {"place": place, "value": cu[place], "before": cu[max(0, place - 1)]})
    if key == "cu_seqlens" and 0 in _steps(cu):
        yield Finding("CU_ZERO_LENGTH", expected=sorted(set(cu)),
                      facts=told | {"place": _steps(cu).index(0) + 1, "value": cu[_steps(cu).index(0)]})
    if total is not None and cu[-1] != total and not _three_axes(facts, cu):
        yield from _end(facts, cu, total, right, told)


def _three_axes(facts: Facts, cu: tuple[int, ...]) -> bool:
    """POS_RANK tells this story: the boundaries run over three copies of the row."""
    positions = facts.batch.position_ids
    return positions is not None and positions.ndim == 3 and cu[-1] == 3 * positions.shape[1] * positions.shape[2]


def _end(facts: Facts, cu: tuple[int, ...], total: int, right: list[int] | None,
         told: dict[str, object]) -> Iterator[Finding]:
    last = cu[-1]
    if last > total:
        yield Finding("CU_END", found=last, expected=right, variant="past", facts=told)
        return
    # A tail of millions is not listed token by token.
    tail = tuple(range(max(0, last), total)) if total - last <= MOST_TOKENS else None
    if _tail_is_padding(facts, last, total):
        yield Finding("CU_END", "warning", indexes=tail, found=last, variant="padding", facts=told)
    else:
        yield Finding("CU_END", indexes=tail, found=last, expected=right, facts=told)


def _tail_is_padding(facts: Facts, last: int, total: int) -> bool:
    keep = facts.keep_of(0)
    if keep is not None and len(keep) == total and not facts.numbers_segments and not keep[max(0, last):].any():
        return True
    if facts.given is None:
        return False
    owner = facts.given.owner[max(0, last):]
    return bool((np.isin(owner, facts.batch.pad_segments) | (owner < 0)).all())


def _mismatch(facts: Facts, cu_q: tuple[int, ...], cu_k: tuple[int, ...]) -> Iterator[Finding]:
    self_attention = cu_q[-1] == cu_k[-1] and facts.batch.want_causal and not facts.batch.past_length
    if len(cu_q) != len(cu_k) or (cu_q != cu_k and self_attention):
        right = _right(facts)
        yield Finding("CU_QK_MISMATCH", expected=right, variant="count" if len(cu_q) != len(cu_k) else "",
                      facts={"num_q": len(cu_q) - 1, "num_k": len(cu_k) - 1})


def _longest(cu: tuple[int, ...], max_seqlen: int | None) -> Iterator[Finding]:
    whole = cu if cu[0] <= 0 else (0, *cu)
    longest = max(_steps(whole))
    if max_seqlen is not None and max_seqlen < longest:
        yield Finding("CU_MAX_SEQLEN", found=max_seqlen, expected=longest)
