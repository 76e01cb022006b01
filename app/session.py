"""Session: what one browser tab owns. The only mutable state of the page; each tab has its own in a gr.State."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.adapters_view import AdaptersView
from app.doctor_view import DoctorView
from app.history_view import HistoryView
from app.i18n import EN
from app.lab_view import LabView
from app.run_view import RunView

if TYPE_CHECKING:
    from app.planner import Plan
    from app.told import Told
    from kev_engine import KevError
    from kev_engine.runtime.audit_stream import AuditStream
    from kev_engine.runtime.engine import RunStream


@dataclass(eq=False)
class Session:
    """What one tab looks at: the run and the stream that feeds it, the plan of memory, the batch examined, the history,
    the adapters and the stream of their comparison."""

    preset: str
    language: str = EN
    view: RunView = field(default_factory=RunView)
    stream: RunStream | None = None
    audit: AuditStream | None = None
    is_busy: bool = False
    """Whether a run or an audit is under way, from the moment it was asked for until the page shows its end."""
    shows_tokens: bool = False
    filling: int = 0
    """How often the cards were filled by the server: what the browser sends of an earlier filling is out of date."""
    plan: Plan | None = None
    plan_error: KevError | None = None
    doctor: DoctorView = field(default_factory=DoctorView)
    history: HistoryView = field(default_factory=HistoryView)
    adapters: AdaptersView = field(default_factory=AdaptersView)
    comparing: RunStream | None = None
    lab: LabView = field(default_factory=LabView)
    model_told: Told | KevError | None = None
    """What was said about the engine itself: a model that is loaded, a new default temperature."""
    model: str = ""
    """The digest of the model whose tokens the views hold."""

    def meet(self, model: str) -> None:
        """Another model answers: its tokenizer gives the token ids of earlier runs other texts, so they are dropped."""
        if self.model not in ("", model):
            self.view, self.adapters = self.view.without_tokens(), AdaptersView()
        self.model = model

    def stop(self) -> None:
        """Ask the run to end, whose answers keep what they have and say that they were stopped; give up an audit."""
        if self.stream is not None:
            self.stream.cancel()
        if self.audit is not None:
            self.audit.cancel()

    def leave(self) -> None:
        """The tab was closed: nothing of it runs on."""
        for stream in (self.stream, self.comparing):
            if stream is not None:
                stream.close()
        if self.audit is not None:
            self.audit.cancel()
