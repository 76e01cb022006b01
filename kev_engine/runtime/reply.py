"""Reply: one answer while it grows, from the first token to the finished text. Owned by the worker."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from kev_engine.errors import KevError, UnusableLogits
from kev_engine.isolation.layout import IntArray
from kev_engine.runtime.events import TextDelta
from kev_engine.runtime.sequence import Sequence
from kev_engine.runtime.speculative import Drafter
from kev_engine.sampling.grammar import Grammar
from kev_engine.sampling.sampler import Draw, RowState
from kev_engine.schema import Answer, Question, SamplingParams, TokenLogprob
from kev_engine.text.detokenize import Detokenizer
from kev_engine.text.stop import StopMatcher

STOP, LENGTH, CANCELLED, ERROR = "stop", "length", "cancelled", "error"


@dataclass(eq=False)
class Reply:
    """Sample number `sample` of one question: its sequence, how it draws, and the text so far."""

    question: Question
    sample: int
    sequence: Sequence
    params: SamplingParams
    detokenizer: Detokenizer
    matcher: StopMatcher
    stop_token_ids: frozenset[int]
    temperature_version: int
    adapter_version: str | None
    grammar: Grammar | None = None
    drafter: Drafter | None = None
    output: list[int] = field(default_factory=list)
    submitted_at: float = field(default_factory=time.perf_counter)
    scheduled_at: float | None = None
    first_token_at: float | None = None
    first_text_at: float | None = None
    last_token_at: float | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    alternatives: list[tuple[TokenLogprob, ...]] = field(default_factory=list)
    prompt_scores: dict[int, float] = field(default_factory=dict)
    """Log-probability of the prompt's token at each position, from the second on."""
    matched_stop: str | None = None
    finish_reason: str | None = None
    error: KevError | None = None

    @cached_property
    def prompt_token_ids(self) -> IntArray:
        return np.asarray(self.sequence.tokens[: self.sequence.num_prompt], dtype=np.int64)

    def rows(self, num_rows: int) -> list[RowState]:
        """What the rows of a step draw with: the one behind the last token, and those behind each guess."""
        assert self.params.seed is not None
        guesses = self.sequence.draft[: num_rows - 1]
        return [
            RowState(
                self.params, self.params.seed, self.prompt_token_ids, [*self.output, *guesses[:count]], self.sample,
                allowed, self.question.logprobs,
            )
            for count, allowed in enumerate(self._allowed(guesses))
        ]

    def _allowed(self, guesses: Many[int]) -> list[torch.Tensor | None]:
        """What the grammar lets through in each row; it comes back to where it stood."""
        if self.grammar is None:
            return [None] * (len(guesses) + 1)
        masks: list[torch.Tensor | None] = [self.grammar.mask()]
        for guess in guesses:
            self.grammar.consume(guess)
            masks.append(self.grammar.mask())
        self.grammar.rollback(len(guesses))
        return masks

    def take(self, draws: Many[Draw]) -> TextDelta:
        """Go on by what the step's rows drew and return what may be shown; sets `finish_reason` at the last token.

        A row behind a guess counts where everything before it was drawn as guessed. So the answer is the one that would
        have been drawn token by token: each row has the number and the history of its own place.
        """
        guesses = self.sequence.draft[: len(draws) - 1]
        text, first, num_confirmed = "", len(self.output), 0
        for index, draw in enumerate(draws):
            if draw.error is not None:
                self.fail(UnusableLogits(self.question.id, draw.error))
                break
            is_confirmed = index < len(guesses) and draw.token_id == guesses[index]
            num_confirmed += is_confirmed
            text += self._add(draw, is_confirmed)
            if self.finish_reason is not None or not is_confirmed:
                break
        if self.drafter is not None:
            self.drafter.record(len(guesses), num_confirmed)
            self.sequence.draft = [] if self.finish_reason is not None else self._guess(self.drafter)
        return self._delta(text, first)

    def _guess(self, drafter: Drafter) -> list[int]:
        """What the next step tries; of a grammar only what it lets through."""
        guesses = drafter.guess(self.sequence.tokens, self.sequence.num_projected - len(self.sequence.tokens))
        return guesses if self.grammar is None else guesses[: self.grammar.count_allowed(guesses)]

    def _delta(self, text: str, first: int) -> TextDelta:
        """What is told of the output from token `first` on."""
        return TextDelta(
            self.question.id, text, tuple(self.output[first:]), self.sample, tuple(self.logprobs[first:]),
            tuple(self.alternatives[first:]),
        )

    def score(self, position: int, logprob: float) -> None:
        """Take note of the log-probability of the prompt's token at this position."""
        if not math.isfinite(logprob):
            reason = f"the log-probability of prompt token {position} is {logprob}, so the prompt cannot be scored"
            self.fail(UnusableLogits(self.question.id, reason))
        self.prompt_scores[position] = logprob

    def _add(self, draw: Draw, is_stored: bool) -> str:
        """Take one drawn token and return the text that may now be shown; sets `finish_reason` when it was the last.

        A stop token ends the answer and belongs to its `token_ids`, not to its text.
        """
        now = time.perf_counter()
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now
        token_id = draw.token_id
        self.sequence.append(token_id, is_stored)
        self.output.append(token_id)
        if draw.logprob is not None:
            self.logprobs.append(draw.logprob)
            self.alternatives.append(draw.alternatives)
        if self.grammar is not None and token_id not in self.stop_token_ids:
            self.grammar.consume(token_id)
        if token_id in self.stop_token_ids and (self.grammar is not None or not self.question.ignore_eos):
            return self._end(STOP)
        text, self.matched_stop = self.matcher.push(self.detokenizer.push([token_id]))
        if self.matched_stop is not None:
            self.finish_reason = STOP
            return self._show(text)
        if self.grammar is not None and self.grammar.is_done:
            return self._end(STOP, text)
        if len(self.output) >= self.sequence.max_new_tokens:
            return self._end(LENGTH, text)
        return self._show(text)

    def _end(self, reason: str, text: str = "") -> str:
        """Finish, and release what the detokenizer and the stop matcher held back."""
        self.finish_reason = reason
        rest, self.matched_stop = self.matcher.push(self.detokenizer.flush())
        if self.matched_stop is not None:
            self.finish_reason = STOP
            return self._show(text + rest)
        return self._show(text + rest + self.matcher.flush())

    def cancel(self) -> TextDelta:
        """End where it stands; the text that was held back is told."""
        return self._delta(self._end(CANCELLED), len(self.output))

    def fail(self, error: KevError) -> None:
        self.finish_reason = ERROR
        self.error = error

    def _show(self, text: str) -> str:
        if text and self.first_text_at is None:
            self.first_text_at = time.perf_counter()
        self.texts.append(text)
        return text

    def answer(self) -> Answer:
        """The finished answer. Times count from submit."""
        num_output = len(self.output)
        tpot = None
        if num_output > 1 and self.first_token_at is not None and self.last_token_at is not None:
            tpot = (self.last_token_at - self.first_token_at) * 1000 / (num_output - 1)
        return Answer(
            question_id=self.question.id,
            sample=self.sample,
            text="".join(self.texts),
            token_ids=tuple(self.output),
            finish_reason=self.finish_reason or CANCELLED,
            error=None if self.error is None else str(self.error),
            matched_stop=self.matched_stop,
            sampling=self.params,
            max_new_tokens=self.sequence.max_new_tokens,
            prompt_tokens=self.sequence.num_prompt,
            cached_tokens=self.sequence.num_cached,
            temperature_version=self.temperature_version,
            adapter=self.question.adapter,
            adapter_version=self.adapter_version,
            queue_ms=self._ms_since_submit(self.scheduled_at),
            ttft_ms=self._ms_since_submit(self.first_token_at),
            first_text_ms=self._ms_since_submit(self.first_text_at),
            tpot_ms=tpot,
            logprobs=tuple(self.logprobs),
            alternatives=tuple(self.alternatives),
            prompt_logprobs=self._prompt_logprobs(),
            draft_proposed=0 if self.drafter is None else self.drafter.num_proposed,
            draft_accepted=0 if self.drafter is None else self.drafter.num_accepted,
        )

    def _prompt_logprobs(self) -> tuple[TokenLogprob | None, ...]:
        """Empty where they were not asked for, or the answer ended before the whole prompt was scored."""
        token_ids = self.prompt_token_ids.tolist()
        if not self.question.prompt_logprobs or len(self.prompt_scores) < len(token_ids) - 1:
            return ()
        positions = range(1, len(token_ids))
        return (None, *(TokenLogprob(token_ids[position], self.prompt_scores[position]) for position in positions))

    def _ms_since_submit(self, moment: float | None) -> float | None:
        return None if moment is None else (moment - self.submitted_at) * 1000
