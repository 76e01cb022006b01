"""What the buttons of the run tab do. Every handler takes the Session and yields only what changed on the page."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from app import question_file, render, sweep
from app.board import Board
from app.explain import explain
from app.forms import LOCAL, PUBLIC, Limits, Parsed, number, parse_all
from app.live_engine import LiveEngine
from app.question_file import QuestionFile
from app.run_facts import cost_of, run_facts
from app.run_view import QUEUED, STREAMING, CardView, DeviceMemory, RunView, SweepView
from app.session import Session
from app.token_texts import TokenTexts
from kev_engine import Finished, KevError, PlanMade, Refused, RunFinished
from kev_engine.errors import EngineClosed, EngineFailed, InvalidField
from kev_engine.runtime.audit_stream import AuditProgress, AuditStream

if TYPE_CHECKING:
    from app.handlers.history import HistoryHandlers
    from kev_engine import Engine
    from kev_engine.runtime.engine import EngineInfo
    from kev_engine.runtime.events import Event

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
"""At most ten screens a second: more is not seen, and drawing costs what the engine could use."""

TEXTS = "texts"
"""The name under which a screen carries the prompt's token texts, sent once a run."""

_AT_ONCE = (PlanMade, Finished, Refused)
BURST_SECONDS = 0.02
"""These are shown at once, and many that come with the same step as one."""

Change = Mapping[str, str]


@dataclass(frozen=True)
class RunHandlers:
    """The page's actions on one engine; what belongs to a tab is in the Session that each call is given."""

    engine: Engine | LiveEngine
    limits: Limits = LOCAL
    history: HistoryHandlers | None = None

    @property
    def is_public(self) -> bool:
        return self.limits == PUBLIC

    @cached_property
    def token_texts(self) -> TokenTexts:
        return TokenTexts(self.engine)

    def facts(self) -> dict[str, str]:
        """What the cards know of the engine: the adapters they may name (name, label), and the default temperature."""
        loaded = self.engine.adapters.list()
        named = [(item.name, f"{item.name} · r{max(item.ranks)} · {item.version[:4]}") for item in loaded]
        defaults = {"temperature": f"{self.engine.temperature.current().value:g}"}
        return {"adapters": render.to_json(named), "defaults": render.to_json(defaults)}

    def question_file(self, name: object, text: object) -> QuestionFile:
        """The cards in a file that the page read; where it is none, the one mistake says so."""
        try:
            return question_file.read(str(name), str(text))
        except KevError as error:
            return QuestionFile(Board(), ((str(name), error),))

    def run(self, session: Session, board: Board) -> Iterator[Change]:
        """Answer the cards of the board; a card with a mistake shows it, the others run."""
        parsed = parse_all(board, self.engine.adapters.names(), self.limits)
        session.shows_tokens = board.shows_tokens
        session.view = _starting(parsed, session.view)
        yield from self._answer(session, board, parsed)

    def sweep(self, session: Session, board: Board, letter: str) -> Iterator[Change]:
        """Answer one card's question at several temperatures, all in one run."""
        parsed = parse_all(board.only(letter), self.engine.adapters.names(), self.limits)
        session.shows_tokens = board.shows_tokens
        if not parsed.questions:
            session.view = _starting(parsed, session.view)
            yield from self._answer(session, board, parsed)
            return
        [question] = parsed.questions
        given = question.sampling.seed
        seed = secrets.randbits(31) if given is None else given
        swept = Parsed(sweep.questions(question, seed), {}, parsed.shared)
        view = _starting(swept, session.view)
        new = SweepView(view.number, sweep.TEMPERATURES, seed, board.cards[letter].expected)
        session.view = replace(view, sweeps={**view.sweeps, letter: new})
        yield from self._answer(session, board.only(letter), swept)

    def look(self, session: Session, shows_tokens: bool) -> Change:
        """The answers token by token, or as text."""
        session.shows_tokens = shows_tokens
        return self._changed(session, {})

    def _answer(self, session: Session, board: Board, parsed: Parsed) -> Iterator[Change]:
        shown: dict[str, str] = {}
        yield from self._news(session, shown)
        if not parsed.questions:
            return
        info = self.engine.info
        try:
            scored = [replace(question, logprobs=True) for question in parsed.questions]
            session.stream = self.engine.stream(scored, parsed.shared)
        except KevError as error:
            session.view = _ended(session.view, error)
            yield from self._news(session, shown)
            return
        try:
            yield from self._watch(session, shown, info)
        finally:
            stream, session.stream = session.stream, None
            stream.close()
        # Kept before its end is shown: who looks for the run then finds it, and who leaves then does not lose it.
        if self.history is not None:
            self.history.keep(session, board, parsed, info)
        yield from self._news(session, shown)
        self._explain(session, info)
        yield from self._news(session, shown)

    def _explain(self, session: Session, info: EngineInfo) -> None:
        """What the run's figures say, if it came to an end; the machine is measured the first time."""
        facts = run_facts(session.view, info)
        if facts is None:
            return
        try:
            machine = self.engine.machine()
        except KevError:
            return
        session.view = replace(session.view, explanation=explain(session.view.notes, facts, cost_of(info), machine))

    def again(self, session: Session, board: Board, letter: str) -> Board:
        """The board with one card alone, its seed the one that its answer was drawn with."""
        card = session.view.cards.get(letter)
        seed = card.answer.sampling.seed if card is not None and card.answer is not None else None
        alone = board.only(letter)
        return alone if seed is None or letter not in alone.cards else alone.with_card(letter, seed=str(seed))

    def _watch(self, session: Session, shown: dict[str, str], info: EngineInfo) -> Iterator[Change]:
        """The run while it goes on; its end is in the view and not yet shown."""
        assert session.stream is not None
        drawn_at = 0.0
        try:
            for event in session.stream:
                if self.engine.info is not info:
                    raise EngineClosed  # what still comes is of a model that answers no more
                session.view = session.view.after(event)
                if isinstance(event, PlanMade | RunFinished):
                    session.view = replace(session.view, memory=self._memory())
                if isinstance(event, RunFinished):
                    return
                now = time.monotonic()
                if now - drawn_at >= (BURST_SECONDS if isinstance(event, _AT_ONCE) else TICK_SECONDS):
                    drawn_at = now
                    yield from self._news(session, shown, event)
        except Exception as error:
            session.view = _ended(session.view, failure(error))

    def audit(self, session: Session, board: Board) -> Iterator[Change]:
        """Prove the isolation of the board's cards; answers that stand in them stay."""
        parsed = parse_all(board, self.engine.adapters.names(), self.limits)
        shown: dict[str, str] = {}
        number = session.view.number
        mistakes = {name: CardView(error=error, run=number) for name, error in parsed.mistakes.items()}
        session.view = replace(session.view, cards={**session.view.cards, **mistakes}, audit=None, notice=None,
                               auditing=AuditProgress(0, 0) if parsed.questions else None)
        yield from self._news(session, shown)
        if not parsed.questions:
            return
        try:
            session.audit = self.engine.audit_stream(parsed.questions, parsed.shared)
            yield from self._follow(session, shown, session.audit)
        except Exception as error:
            session.view = replace(session.view, notice=failure(error))
        finally:
            session.audit = None
        session.view = replace(session.view, auditing=None)
        if self.history is not None:
            self.history.audited(session, board)
        yield from self._news(session, shown)

    def _follow(self, session: Session, shown: dict[str, str], stream: AuditStream) -> Iterator[Change]:
        """How far the audit is, as often as a person can see it; its verdict stays in the view."""
        drawn_at = 0.0
        with closing(iter(stream)) as events:
            for event in events:
                if isinstance(event, AuditProgress):
                    session.view = replace(session.view, auditing=event)
                    if time.monotonic() - drawn_at >= TICK_SECONDS:
                        drawn_at = time.monotonic()
                        yield from self._news(session, shown)
                else:
                    session.view = replace(session.view, audit=event)

    def speak(self, session: Session, language: str) -> Change:
        """Everything that a run has shown, in `language`; a run that goes on continues in it."""
        session.language = language
        return self._changed(session, {})

    def clear(self, session: Session) -> Change:
        """The screen without a run."""
        session.view = RunView(number=session.view.number, memory=self._memory())
        return self._changed(session, {})

    def cell(self, session: Session, row: int) -> str:
        """The sentence about the query that was clicked in the mask."""
        return render.cell(session.view, row, self.token_texts, session.language)

    def blank(self, language: str) -> Change:
        """The screen before the first run."""
        return render.screen(RunView(memory=self._memory()), self.engine.info, self.token_texts, language)

    def masthead(self, language: str, mistake: KevError | None = None) -> str:
        return render.masthead(self.engine.info, self.engine.temperature.current(), language, mistake,
                               is_fixed=self.is_public)

    def set_temperature(self, text: str) -> KevError | None:
        """Make what was typed the default temperature of runs that begin from now on; the mistake, if it is none."""
        try:
            self.engine.temperature.set(number("temperature", text))
        except InvalidField as error:
            return InvalidField("default_temperature", error.value, error.way_out)
        return None

    def _memory(self) -> DeviceMemory:
        adapters = sum(item.num_bytes for item in self.engine.adapters.list() if item.is_resident)
        return DeviceMemory(self.engine.info.weight_bytes, adapters, self.engine.free_bytes())

    def _news(self, session: Session, shown: dict[str, str], event: Event | None = None) -> tuple[Change, ...]:
        """What differs from `shown`, if anything: an empty change is no update to Gradio but a mistake."""
        change = self._changed(session, shown, event)
        return (change,) if change else ()

    def _changed(self, session: Session, shown: dict[str, str], event: Event | None = None) -> Change:
        """What differs from `shown`, which is brought up to date."""
        session.meet(self.engine.info.digest)
        screen = render.screen(session.view, self.engine.info, self.token_texts, session.language,
                               session.shows_tokens)
        if isinstance(event, PlanMade):
            screen[TEXTS] = render.prompt_texts(session.view, self.token_texts)
        changed = {name: value for name, value in screen.items() if shown.get(name) != value}
        shown.update(changed)
        return changed


def _starting(parsed: Parsed, before: RunView) -> RunView:
    """The view of a run that begins: its own cards are blank, the others keep their answers."""
    number = before.number + 1
    cards = {question.id: CardView(question.n, run=number, is_default_temperature=question.sampling.temperature is None)
             for question in parsed.questions}
    cards |= {name: CardView(error=error, run=number) for name, error in parsed.mistakes.items()}
    sweeps = {letter: swept for letter, swept in before.sweeps.items() if letter not in cards}
    return RunView(number, {**before.cards, **cards}, sweeps, before=before.explanation or before.before)


def _ended(view: RunView, error: KevError) -> RunView:
    """The engine ended the run: what was written stays, and the sentence stands where the verdict is."""
    cut = {name: replace(card, is_cut=True) for name, card in view.current.items()
           if card.status in (QUEUED, STREAMING)}
    return replace(view, cards={**view.cards, **cut}, notice=error)


def failure(error: Exception) -> KevError:
    """What a page can say about any failure; one that the engine did not foresee is logged with its trace."""
    if isinstance(error, KevError):
        return error
    _log.error("the engine failed", exc_info=error)
    return EngineFailed(error)
