"""LabView: what the fault lab of one tab shows. Values only; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.doctor_view import DoctorView
from kev_engine import KevError

if TYPE_CHECKING:
    from kev_engine import Audit


@dataclass(frozen=True)
class Answers:
    """One question's greedy answer without the fault and with it."""

    right: str
    broken: str


@dataclass(frozen=True)
class LabView:
    """A run of the real model with a fault: its proofs and answers, and what the doctor says of its arrays.

    While it runs, `progress` is (forwards done, of all; 0 where that is not known yet).
    """

    fault: str = ""
    progress: tuple[int, int] | None = None
    audit: Audit | None = None
    answers: Mapping[str, Answers] = field(default_factory=dict)
    doctor: DoctorView = field(default_factory=DoctorView)
    error: KevError | None = None
