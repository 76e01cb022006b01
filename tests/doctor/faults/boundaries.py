"""Boundaries of varlen calls."""

from __future__ import annotations

from random import Random

from tests.doctor.faults.edit import Edit, edited, fault, need
from tests.doctor.right import varlen
from tests.doctor.rows import Description


def boundaries(random: Random, least: int = 1) -> tuple[list[int], Description]:
    """Boundaries under one key, with nothing beside them that has to change as well."""
    layout, batch = varlen(random, least)
    for key in ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen", "attention_mask", "sliding_window"):
        batch.pop(key, None)
    cu = layout.cu_seqlens.tolist()
    return cu, batch | {"cu_seqlens": cu}


@fault("a border shifted by one in `cu_seqlens`")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random, 2)
    spot = random.randrange(1, len(cu) - 1)
    wrong = cu.copy()
    wrong[spot] += random.choice((-1, 1))
    need(wrong[spot - 1] < wrong[spot] < wrong[spot + 1])
    return edited(batch, "BOUNDARY_CONFLICT", cu_seqlens=wrong)


@fault("a border lost from `cu_seqlens`")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random, 2)
    spot = random.randrange(1, len(cu) - 1)
    return edited(batch, "BOUNDARY_CONFLICT", cu_seqlens=cu[:spot] + cu[spot + 1 :])


@fault("a border too many in `cu_seqlens`")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random)
    free = sorted(set(range(cu[-1])) - set(cu))
    need(free)
    return edited(batch, "BOUNDARY_CONFLICT", cu_seqlens=sorted([*cu, random.choice(free)]))


@fault("two entries of `cu_seqlens` swapped")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random, 3)
    spot = random.randrange(1, len(cu) - 2)
    wrong = cu.copy()
    wrong[spot], wrong[spot + 1] = wrong[spot + 1], wrong[spot]
    return edited(batch, "CU_NEGATIVE", cu_seqlens=wrong)


@fault("leading zero dropped")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random, 2)
    return edited(batch, "CU_NO_LEADING_ZERO", cu_seqlens=cu[1:])


@fault("an entry doubled")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random)
    spot = random.randrange(len(cu))
    return edited(batch, "CU_ZERO_LENGTH", cu_seqlens=[*cu[:spot], cu[spot], *cu[spot:]])


@fault("last entry dropped")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random, 2)
    return edited(batch, "CU_END", cu_seqlens=cu[:-1])


@fault("last entry moved")
def _(random: Random) -> Edit:
    cu, batch = boundaries(random)
    wrong = [*cu[:-1], cu[-1] + random.choice((-1, 1, 4))]
    need(wrong[-1] > wrong[-2])
    return edited(batch, "CU_END", cu_seqlens=wrong)


@fault("boundaries in int64")
def _(random: Random) -> Edit:
    return edited(varlen(random)[1], "CU_DTYPE", cu_dtype="int64")


@fault("`max_seqlen` too small")
def _(random: Random) -> Edit:
    layout, batch = varlen(random)
    need(max(layout.lengths) > 1)
    return edited(batch, "CU_MAX_SEQLEN", max_seqlen=random.randint(1, max(layout.lengths) - 1))


@fault("query and key boundaries differ")
def _(random: Random) -> Edit:
    layout, batch = varlen(random, 3)
    for key in ("cu_seqlens", "max_seqlen", "attention_mask", "sliding_window"):
        batch.pop(key, None)
    cu = layout.cu_seqlens.tolist()
    spot = random.randrange(1, len(cu) - 1)
    wrong = cu.copy()
    if random.random() < 0.5:
        wrong[spot] += 1
        need(wrong[spot] < wrong[spot + 1])
    else:
        del wrong[spot]
    return edited(batch | {"cu_seqlens_q": cu, "cu_seqlens_k": cu}, "CU_QK_MISMATCH", cu_seqlens_k=wrong)
