"""Edit: a right batch and the same with a single fault; `fault` registers a way to make one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np

from tests.doctor.rows import Description, Row


class Edit(NamedTuple):
    """A right batch, the same with one fault, and the code of the fault (one of several where either names it)."""

    right: Description
    wrong: Description
    codes: tuple[str, ...]


class Unfit(Exception):
    """This draw has no room for the fault; draw again."""


Maker = Callable[[Random], Edit]
FAULTS: dict[str, list[Maker]] = {}


def fault(name: str) -> Callable[[Maker], Maker]:
    """Registers a way to make the fault that docs/doctor.md calls `name`."""

    def register(make: Maker) -> Maker:
        FAULTS.setdefault(name, []).append(make)
        return make

    return register


def need(condition: object) -> None:
    if not condition:
        raise Unfit


def place(random: Random, marks: np.ndarray) -> tuple[int, int]:
    """One of the marked cells."""
    found = np.argwhere(marks)
    need(len(found))
    query, key = random.choice(found.tolist())
    return query, key


def edited(batch: Description, *codes: str, **changes: object) -> Edit:
    """The batch with these keys set; a key set to None is taken away."""
    return Edit(batch, {key: value for key, value in (batch | changes).items() if value is not None}, codes)


def with_cells(cells: Row, allowed: np.ndarray, *codes: str) -> Edit:
    """The row with this mask instead."""
    return Edit(cells.batch(), cells.batch(allowed), codes)
