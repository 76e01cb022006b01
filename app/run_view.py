"""RunView: what a page knows about its run, folded from the engine's events. Values only; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.explain import Explanation, StepNote
from kev_engine import (
    Answer,
    Finished,
    KevError,
    PackedLayout,
    PlanMade,
    Prefilling,
    Refused,
    RunFinished,
    Step,
    TextDelta,
    pack,
)

if TYPE_CHECKING:
    from kev_engine import Audit
    from kev_engine.runtime.audit_stream import AuditProgress
    from kev_engine.runtime.events import Event
    from kev_engine.schema import TokenLogprob

QUEUED, STREAMING, ERROR = "queued", "streaming", "error"


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on the device beside the keys and values: the model's weights, the resident adapters, and what is free."""

    weights: int
    adapters: int
    free: int | None


@dataclass(frozen=True)
class StepRun:
    """Forwards of one composition, one behind the other.

    `rows` of the first are (segment, start, number of new tokens); in each later one every row is a single token, one
    position further on. (A run of 500 steps is a handful of these.)
    """

    first: int
    count: int
    rows: tuple[tuple[int, int, int], ...]

    def goes_on(self, rows: tuple[tuple[int, int, int], ...]) -> bool:
        """Whether a forward of these rows is the next of this stretch."""
        return len(rows) == len(self.rows) and all(
            segment == before and num_new == num_before == 1 and start == start_before + self.count
            for (segment, start, num_new), (before, start_before, num_before) in zip(rows, self.rows, strict=True)
        )


@dataclass(frozen=True)
class Piece:
    """A text that appeared at once, and how many tokens it took."""

    text: str
    num_tokens: int


@dataclass(frozen=True)
class SampleView:
    """One answer to a question, so far; `scores` and `alternatives` belong to its tokens, where they were asked for."""

    pieces: tuple[Piece, ...] = ()
    token_ids: tuple[int, ...] = ()
    scores: tuple[TokenLogprob, ...] = ()
    alternatives: tuple[tuple[TokenLogprob, ...], ...] = ()
    answer: Answer | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces) if self.answer is None else self.answer.text

    def after(self, delta: TextDelta) -> SampleView:
        """With what one more step wrote. Tokens without a text of their own are counted to the text that follows."""
        count, pieces = len(delta.token_ids), self.pieces
        if pieces and not pieces[-1].text:
            count, pieces = count + pieces[-1].num_tokens, pieces[:-1]
        return replace(
            self, pieces=(*pieces, Piece(delta.text, count)), token_ids=self.token_ids + delta.token_ids,
            scores=self.scores + delta.logprobs, alternatives=self.alternatives + delta.alternatives)


@dataclass(frozen=True)
class SweepView:
    """One card's question at several temperatures: the run, the temperatures, the seed, and the answer expected."""

    run: int
    temperatures: tuple[float, ...]
    seed: int
    expected: str = ""


@dataclass(frozen=True)
class CardView:
    """One question's answers so far: `num_samples` of them in the end, in the order of their samples.

    `run` is the number of the run that wrote them; `is_cut` says that the engine ended it before they were whole,
    `is_default_temperature` that the question named none of its own.
    """

    num_samples: int = 1
    samples: tuple[SampleView, ...] = ()
    error: KevError | None = None
    run: int = 0
    is_cut: bool = False
    is_default_temperature: bool = False

    @property
    def status(self) -> str:
        """Queued, streaming, error, or how the answer ended (the first of several)."""
        answers = [sample.answer for sample in self.samples if sample.answer is not None]
        if self.error is not None or self.is_cut:
            return ERROR
        if len(answers) == self.num_samples:
            return answers[0].finish_reason
        return STREAMING if self.num_tokens or answers else QUEUED

    @property
    def answer(self) -> Answer | None:
        """The answer of the first sample, once it is finished."""
        return self.samples[0].answer if self.samples else None

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.samples[0].token_ids if self.samples else ()

    @property
    def num_tokens(self) -> int:
        """Tokens of all samples together."""
        return sum(len(sample.token_ids) for sample in self.samples)

    def sample(self, number: int) -> SampleView:
        return self.samples[number] if number < len(self.samples) else SampleView()

    def with_sample(self, number: int, sample: SampleView) -> CardView:
        samples = [self.sample(index) for index in range(max(number + 1, len(self.samples)))]
        samples[number] = sample
        return replace(self, samples=tuple(samples))


@dataclass(frozen=True)
class RunView:
    """A run as seen so far: its cards by question id, the plan, the last step, the figures, the audit.

    Cards that did not take part keep what an earlier run wrote. `number` counts the runs of a tab.
    """

    number: int = 0
    cards: Mapping[str, CardView] = field(default_factory=dict)
    sweeps: Mapping[str, SweepView] = field(default_factory=dict)
    """By the letter of the card whose question was swept."""
    plan: PlanMade | None = None
    prefilling: Prefilling | None = None
    """How far the forward under way is, if it is a long one."""
    step: Step | None = None
    steps: tuple[StepRun, ...] = ()
    """Every forward of the run so far."""
    kv_used: tuple[int, ...] = ()
    """Bytes of KV memory that held tokens after each forward."""
    memory: DeviceMemory | None = None
    notes: tuple[StepNote, ...] = ()
    """What each forward consisted of, and what it took."""
    explanation: Explanation | None = None
    before: Explanation | None = None
    """Of the run before this one."""
    executed: tuple[int, ...] = ()
    """Tokens of each segment that went through the model, prompt and generated: those whose keys exist."""
    run: RunFinished | None = None
    audit: Audit | None = None
    auditing: AuditProgress | None = None
    """How far an audit under way is; None: none is."""
    notice: KevError | None = None

    def after(self, event: Event) -> RunView:
        """The view once `event` has happened."""
        match event:
            case PlanMade():
                return replace(self, plan=event, executed=(0,) * event.layout.num_segments)
            case Prefilling():
                return replace(self, prefilling=event)
            case Step():
                return replace(self, prefilling=None, step=event, executed=self._executed_after(event),
                               steps=self._steps_after(event), kv_used=(*self.kv_used, event.kv.bytes_used),
                               notes=(*self.notes, _note(event)))
            case TextDelta():
                card = self.cards.get(event.question_id, CardView())
                return self.with_card(
                    event.question_id, card.with_sample(event.sample, card.sample(event.sample).after(event)))
            case Finished():
                answer = event.answer
                card = self.cards.get(answer.question_id, CardView())
                return self.with_card(answer.question_id, card.with_sample(
                    answer.sample, replace(card.sample(answer.sample), token_ids=answer.token_ids, answer=answer)))
            case Refused():
                card = self.cards.get(event.question_id, CardView())
                return self.with_card(event.question_id, replace(card, error=event.error))
            case RunFinished():
                return replace(self, run=event)

    def without_tokens(self) -> RunView:
        """The answers as texts, without mask and gauge: what is left when another model answers."""
        cards = {name: replace(card, samples=tuple(replace(one, scores=(), alternatives=()) for one in card.samples))
                 for name, card in self.cards.items()}
        return RunView(self.number, cards, self.sweeps, notice=self.notice)

    def with_card(self, question_id: str, card: CardView) -> RunView:
        return replace(self, cards={**self.cards, question_id: card})

    def _steps_after(self, step: Step) -> tuple[StepRun, ...]:
        rows = tuple((segment, chunk.start, chunk.num_new)
                     for chunk, segment in zip(step.kept_chunks, step.segments, strict=True))
        if self.steps and self.steps[-1].goes_on(rows):
            last = self.steps[-1]
            return (*self.steps[:-1], replace(last, count=last.count + 1))
        return (*self.steps, StepRun(step.index, 1, rows))

    def _executed_after(self, step: Step) -> tuple[int, ...]:
        assert self.plan is not None
        executed = list(self.executed)
        for chunk, segment in zip(step.kept_chunks, step.segments, strict=True):
            if segment >= 0:
                executed[segment] = chunk.num_keys - self.plan.layout.position_starts[segment]
        return tuple(executed)

    @property
    def current(self) -> Mapping[str, CardView]:
        """The cards of this run, without those of earlier ones."""
        return {name: card for name, card in self.cards.items() if card.run == self.number}

    @property
    def is_live(self) -> bool:
        """Whether some answer is still being written."""
        return any(card.status in (QUEUED, STREAMING) for card in self.current.values())

    @property
    def num_written(self) -> int:
        """Tokens that this run has written in all its answers."""
        return sum(card.num_tokens for card in self.current.values())

    @property
    def layout(self) -> PackedLayout | None:
        """The story so far: every prompt as packed, and behind it the generated tokens that were executed."""
        if self.plan is None:
            return None
        packed = self.plan.layout
        return pack([max(pair) for pair in zip(packed.lengths, self.executed, strict=True)], packed.parents)

    def generated(self, segment: int) -> tuple[int, ...]:
        """The generated tokens of a segment that were executed."""
        assert self.plan is not None
        info = self.plan.segments[segment]
        card = None if info.is_shared else self.cards.get(info.name)
        count = max(0, self.executed[segment] - self.plan.layout.lengths[segment])
        return card.sample(info.sample).token_ids[:count] if card else ()


def _note(step: Step) -> StepNote:
    chunks = step.plan.chunks
    return StepNote(
        num_tokens=sum(chunk.num_new for chunk in chunks),
        prompt_tokens=0 if step.batch is None else step.batch.prompt_tokens,
        num_sequences=len(chunks), num_rows=len(step.plan.sample_rows),
        cells=sum(chunk.num_new * chunk.start + chunk.num_new * (chunk.num_new + 1) // 2 for chunk in chunks),
        keys=sum(chunk.num_keys for chunk in chunks),
        forward_ms=step.forward_ms, other_ms=step.plan_ms + step.sample_ms,
    )
