"""Told: something the page says, whichever language it is then read in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Told:
    """A sentence of the catalogue and its facts."""

    key: str
    facts: Mapping[str, object] = field(default_factory=dict)
