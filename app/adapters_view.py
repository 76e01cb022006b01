"""AdaptersView: what one browser tab knows of its adapters tab. Values only; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.run_view import RunView
from app.told import Told
from kev_engine import KevError

if TYPE_CHECKING:
    from kev_engine.runtime.adapter_effect import AdapterEffect

BASE_ID = " base"
"""The question that the base answers in a comparison; no adapter's name starts with a space."""


@dataclass(frozen=True)
class AdaptersView:
    """The last comparison, the effects measured so far by version, and what was said about the last action, which was
    one of the form or one of the table."""

    compared: RunView = field(default_factory=RunView)
    effects: Mapping[str, AdapterEffect] = field(default_factory=dict)
    told: tuple[Told | KevError, ...] = ()
    is_form: bool = False
    mistake: KevError | None = None
    """What is wrong with the question of the comparison."""

    @property
    def has_failed(self) -> bool:
        """Whether the last action was refused."""
        return any(isinstance(item, KevError) for item in self.told)
