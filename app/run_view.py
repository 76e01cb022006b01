"""RunView: what a page knows about its run, folded from the engine's events. Values only; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kev_engine import Answer, Finished, KevError, PackedLayout, PlanMade, Refused, RunFinished, Step, TextDelta, pack

if TYPE_CHECKING:
    from kev_engine import Audit
    from kev_engine.runtime.events import Event

QUEUED, STREAMING, ERROR = "queued", "streaming", "error"


@dataclass(frozen=True)
class CardView:
    """One question's answer so far. `status` is queued, streaming, or the answer's finish reason."""

    status: str = QUEUED
    text: str = ""
    token_ids: tuple[int, ...] = ()
    answer: Answer | None = None
    error: KevError | None = None


@dataclass(frozen=True)
class RunView:
    """A run as seen so far: its cards by question id, the plan, the last step, the figures, the audit."""

    cards: Mapping[str, CardView] = field(default_factory=dict)
    plan: PlanMade | None = None
    step: Step | None = None
    executed: tuple[int, ...] = ()
    """Tokens of each segment that went through the model, prompt and generated: those whose keys exist."""
    run: RunFinished | None = None
    audit: Audit | None = None
    is_auditing: bool = False
    notice: KevError | None = None

    def after(self, event: Event) -> RunView:
        """The view once `event` has happened."""
        match event:
            case PlanMade():
                return replace(self, plan=event, executed=(0,) * event.layout.num_segments)
            case Step():
                return replace(self, step=event, executed=self._executed_after(event))
            case TextDelta():
                card = self.cards.get(event.question_id, CardView())
                return self.with_card(event.question_id, replace(
                    card, status=STREAMING, text=card.text + event.text, token_ids=card.token_ids + event.token_ids))
            case Finished():
                answer = event.answer
                return self.with_card(answer.question_id, replace(
                    self.cards.get(answer.question_id, CardView()),
                    status=answer.finish_reason, text=answer.text, token_ids=answer.token_ids, answer=answer))
            case Refused():
                card = self.cards.get(event.question_id, CardView())
                return self.with_card(event.question_id, replace(card, status=ERROR, error=event.error))
            case RunFinished():
                return replace(self, run=event)

    def with_card(self, question_id: str, card: CardView) -> RunView:
        return replace(self, cards={**self.cards, question_id: card})

    def _executed_after(self, step: Step) -> tuple[int, ...]:
        assert self.plan is not None
        executed = list(self.executed)
        for chunk, segment in zip(step.plan.chunks, step.segments, strict=True):
            if segment >= 0:
                executed[segment] = chunk.num_keys - self.plan.layout.position_starts[segment]
        return tuple(executed)

    @property
    def is_live(self) -> bool:
        """Whether some answer is still being written."""
        return any(card.status in (QUEUED, STREAMING) for card in self.cards.values())

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
        return card.token_ids[:count] if card else ()
