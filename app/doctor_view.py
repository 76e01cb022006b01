"""DoctorView: what a page knows about the batch it examines. Values only; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kev_engine import KevError
from kev_engine.doctor import Report


@dataclass(frozen=True)
class DoctorView:
    """The description as it was given, its report, the row of it that is drawn, or the error that stands instead."""

    description: Mapping[str, Any] = field(default_factory=dict)
    report: Report | None = None
    row: int = 0
    error: KevError | None = None
