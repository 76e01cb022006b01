"""Break it: the run tab's questions through the real model with a classic fault, and the doctor's word on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app import render
from app.board import Board
from app.doctor_view import DoctorView
from app.forms import LOCAL, Limits, Parsed, parse_all
from app.handlers.doctor import told
from app.lab_view import Answers, LabView
from app.live_engine import LiveEngine
from app.session import Session
from kev_engine import Audit, Question, SamplingParams, SharedContext
from kev_engine.doctor import diagnose
from kev_engine.doctor.lab import broken_batch
from kev_engine.isolation.faults import FAULTS, fault_named

if TYPE_CHECKING:
    from kev_engine import Engine

NEW_TOKENS = 16
"""How much of each answer is written: enough to see that it changed."""

Change = Mapping[str, str]


@dataclass(frozen=True)
class FaultLabHandlers:
    """The lab's actions on one engine; what belongs to a tab is in its Session."""

    engine: Engine | LiveEngine
    limits: Limits = LOCAL

    def break_it(self, session: Session, board: Board, fault: str) -> Iterator[Change]:
        """Answer and audit the board's cards with `fault`, and examine its arrays; a card with a mistake stops it."""
        session.lab = LabView(fault, progress=(0, 0))
        yield self.screen(session)
        try:
            fault_named(fault)
            parsed = self._parsed(board)
            yield from self._run(session, [_short(question) for question in parsed.questions], parsed.shared)
        except Exception as error:
            session.lab = LabView(fault, error=told(error))
            yield self.screen(session)

    def questions(self, board: Board) -> list[Question]:
        """The board's cards as they are asked here. Raises the first card's mistake."""
        return [_short(question) for question in self._parsed(board).questions]

    def _parsed(self, board: Board) -> Parsed:
        parsed = parse_all(board, self.engine.adapters.names(), self.limits)
        if parsed.mistakes:
            raise next(iter(parsed.mistakes.values()))
        return parsed

    def _run(
        self, session: Session, questions: Sequence[Question], shared: Sequence[SharedContext]
    ) -> Iterator[Change]:
        right = {answer.question_id: answer.text for answer in self.engine.ask(questions, shared).answers}
        for event in self.engine.audit_stream(questions, shared, session.lab.fault, NEW_TOKENS):
            if not isinstance(event, Audit):
                if event.done in twentieths(event.total):
                    session.lab = replace(session.lab, progress=(event.done, event.total))
                    yield self.screen(session)
                continue
            batch = broken_batch(event, FAULTS[session.lab.fault])
            batch["tokens"] = [text for info in event.segments for text in self.engine.token_texts(info.token_ids)]
            answers = {proof.question_id: Answers(right.get(proof.question_id, ""), self._text(proof.token_ids))
                       for proof in event.questions}
            session.lab = replace(session.lab, progress=None, audit=event, answers=answers,
                                  doctor=DoctorView(batch, diagnose(batch)))
        yield self.screen(session)

    def speak(self, session: Session, language: str) -> Change:
        """What the lab shows, in `language`."""
        session.language = language
        return self.screen(session)

    def blank(self) -> Change:
        return self.screen(Session(preset=""))

    def turn(self, session: Session, stretch: Sequence[int]) -> str:
        """One stretch of the mask, cell by cell."""
        first_query, last_query, first_key, last_key = stretch
        return render.doctor_window(session.lab.doctor, (first_query, last_query), (first_key, last_key))

    def screen(self, session: Session) -> Change:
        view, language = session.lab, session.language
        return {"map": render.doctor_map(view.doctor, language), "strip": render.doctor_strip(view.doctor),
                "verdict": render.lab_verdict(view, language), "findings": render.lab_findings(view, language)}

    def _text(self, token_ids: Sequence[int]) -> str:
        return str(self.engine.tokenizer.decode(list(token_ids), skip_special_tokens=True))


def twentieths(total: int) -> frozenset[int]:
    """The forwards at which progress is drawn: some twenty in all."""
    return frozenset(range(0, total + 1, max(1, total // 20)))


def _short(question: Question) -> Question:
    """The question as the audit asks it: one answer, greedily, and short."""
    return replace(question, n=1, sampling=SamplingParams(temperature=0), draft=0,
                   max_new_tokens=min(question.max_new_tokens, NEW_TOKENS))
