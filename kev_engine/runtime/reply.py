"""Reply: one answer while it grows, from the first token to the finished text. Owned by the worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kev_engine.errors import KevError
from kev_engine.runtime.sequence import Sequence
from kev_engine.sampling.grammar import Grammar
from kev_engine.sampling.sampler import RowState
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
    cached_tokens: int = 0
    output: list[int] = field(default_factory=list)
    submitted_at: float = field(default_factory=time.perf_counter)
    scheduled_at: float | None = None
    first_token_at: float | None = None
    first_text_at: float | None = None
    last_token_at: float | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    alternatives: list[tuple[TokenLogprob, ...]] = field(default_factory=list)
    matched_stop: str | None = None
    finish_reason: str | None = None
    error: KevError | None = None

    def row(self) -> RowState:
        """What the next token is drawn with."""
        assert self.params.seed is not None
        allowed = None if self.grammar is None else self.grammar.mask()
        prompt = self.sequence.tokens[: self.sequence.num_prompt] if self._reads_prompt else ()
        return RowState(self.params, self.params.seed, prompt, self.output, self.sample, allowed)

    @property
    def _reads_prompt(self) -> bool:
        return self.params.repetition_penalty != 1

    def add(self, token_id: int) -> str:
        """Take one drawn token and return the text that may now be shown; sets `finish_reason` when it was the last.

        A stop token ends the answer and belongs to its `token_ids`, not to its text.
        """
        now = time.perf_counter()
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now
        self.sequence.tokens.append(token_id)
        self.output.append(token_id)
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

    def cancel(self) -> str:
        """End where it stands; the text that was held back is returned."""
        return self._end(CANCELLED)

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
            cached_tokens=self.cached_tokens,
            temperature_version=self.temperature_version,
            adapter=self.question.adapter,
            adapter_version=self.adapter_version,
            queue_ms=self._ms_since_submit(self.scheduled_at),
            ttft_ms=self._ms_since_submit(self.first_token_at),
            first_text_ms=self._ms_since_submit(self.first_text_at),
            tpot_ms=tpot,
            logprobs=tuple(self.logprobs),
            alternatives=tuple(self.alternatives),
        )

    def _ms_since_submit(self, moment: float | None) -> float | None:
        return None if moment is None else (moment - self.submitted_at) * 1000
