"""What the Doctor tab does. Every handler takes the Session and returns what is shown, by the name of its place."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import doctor_form, render
from app.doctor_presets import EXAMPLES
from app.doctor_view import DoctorView
from app.session import Session
from kev_engine import KevError
from kev_engine.doctor import diagnose
from kev_engine.errors import EngineFailed, UnreadableFile

if TYPE_CHECKING:
    from app.live_engine import LiveEngine
    from kev_engine import Engine

_log = logging.getLogger(__name__)

Change = Mapping[str, str]


@dataclass(frozen=True)
class DoctorHandlers:
    """The actions of the tab; the engine is asked for its tokenizer only."""

    engine: Engine | LiveEngine
    is_public: bool = False

    def examine(self, session: Session, text: str, uploads: Sequence[str]) -> Change:
        """Diagnose what stands in the form."""
        try:
            description = doctor_form.parse(text, uploads, self.is_public)
            session.doctor = DoctorView(description, diagnose(description))
        except Exception as error:
            session.doctor = DoctorView(error=told(error))
        return self.screen(session)

    def example(self, session: Session, key: str) -> tuple[str, Change]:
        """The text of an example, and its diagnosis."""
        text = doctor_form.as_text(EXAMPLES[key])
        return text, self.examine(session, text, ())

    def describe(self, session: Session, pieces: str, template: str, recorded: str, tokenizer: str
                 ) -> tuple[str | None, Change]:
        """The batch that texts make, as text for the form, and its diagnosis; no text where it cannot be made."""
        from kev_engine.doctor.text import describe

        try:
            description = describe(self._tokenizer(tokenizer), doctor_form.pieces(pieces), template,
                                   doctor_form.intervals(recorded))
        except Exception as error:
            session.doctor = DoctorView(error=told(error))
            return None, self.screen(session)
        text = doctor_form.as_text(description)
        return text, self.examine(session, text, ())

    def turn(self, session: Session, row: int) -> Change:
        """Draw another row of the batch."""
        facts = session.doctor.report.facts if session.doctor.report is not None else None
        count = len(facts.judged) if facts is not None else 1
        session.doctor = replace(session.doctor, row=max(0, min(count - 1, row)))
        return self.screen(session)

    def clear(self, session: Session) -> Change:
        """The tab before anything was examined."""
        session.doctor = DoctorView()
        return self.screen(session)

    def speak(self, session: Session, language: str) -> Change:
        """What the tab shows, in `language`."""
        session.language = language
        return self.screen(session)

    def blank(self) -> Change:
        """The screen of a fresh tab, in English."""
        return self.screen(Session(preset=""))

    def window(self, session: Session, stretch: Sequence[int]) -> str:
        """One stretch of the mask, cell by cell, for a canvas that has only blocks of it."""
        first_query, last_query, first_key, last_key = stretch
        return render.doctor_window(session.doctor, (first_query, last_query), (first_key, last_key))

    def screen(self, session: Session) -> Change:
        """Everything that the tab shows."""
        view, language = session.doctor, session.language
        return {"map": render.doctor_map(view, language), "strip": render.doctor_strip(view),
                "findings": render.doctor_findings(view, language), "repair": render.doctor_repair(view, language)}

    def _tokenizer(self, name: str) -> Any:
        if not name.strip():
            return self.engine.tokenizer
        if self.is_public:
            raise doctor_form.OnlyTheLoadedTokenizer("only the loaded tokenizer can be used here")
        from kev_engine.models.tokenizer import load_tokenizer

        return load_tokenizer(name.strip())


def told(error: Exception) -> KevError:
    """What the page can say about any failure; one that nobody foresaw is logged with its trace."""
    if isinstance(error, UnreadableFile):
        # The folder that uploads lie in says nothing to anybody.
        path = str(error.facts["path"])
        return UnreadableFile(Path(path).name, str(error.facts["where"]),
                              str(error.facts["way_out"]).replace(path, Path(path).name))
    if isinstance(error, KevError):
        return error
    _log.error("the doctor failed", exc_info=error)
    return EngineFailed(error)
