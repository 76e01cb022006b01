"""What the page's API and its MCP tools do. Each takes and returns JSON; a mistake is a gr.Error with our sentence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.forms import LOCAL, Limits, SamplesOverLimit, TextOverLimit, TokensOverLimit
from kev_engine import InputError, KevError, Question, diagnose
from kev_engine.errors import InvalidField, TooManyQuestions
from kev_engine.runtime.questions_file import QuestionsFile, ask_file, parse_questions, run_json
from kev_engine.text.chat import ChatEncoder, Prompt

if TYPE_CHECKING:
    from app.live_engine import LiveEngine

_log = logging.getLogger(__name__)
SOURCE = "the call"
"""What errors call the questions that came with a call."""


@dataclass(frozen=True)
class ApiHandlers:
    """The four endpoints on one engine; the limits of a public page hold here too."""

    engine: LiveEngine
    limits: Limits = LOCAL

    def run(self, questions: list[dict[str, Any]], shared: dict[str, Any] | None = None) -> dict[str, Any]:
        """Answer several questions in one packed forward pass, each isolated from the others.

        Args:
            questions: Objects with an id and a question; optional keys: context, messages, shared, system, adapter, temperature, top_k, top_p, min_p, repetition_penalty, max_new_tokens, stop, seed, n, json_schema, regex, choices.
            shared: Contexts that several questions may name in their key shared, as an object of name and text.

        Returns:
            answers in the order asked, each with its text, sampling and times, and the figures of the run; a question with a mistake has finish_reason error and the sentence
        """  # noqa: E501
        return run_json(ask_file(self.engine.current, self._file(questions, shared)))

    def audit(
        self, questions: list[dict[str, Any]], shared: dict[str, Any] | None = None, fault: str | None = None
    ) -> dict[str, Any]:
        """Prove that questions packed in one forward pass do not read each other: alone, neighbour swap, NaN poison.

        Args:
            questions: Objects with an id and a question, as for run.
            shared: Contexts that several questions may name, as for run.
            fault: The name of a fault to inject, to see the proofs fail: shift-interval, no-causal, inverted, float01, ones-2d, no-reset, one-cell or adapter-shift.

        Returns:
            isolated, the proofs of each question, the allowed cells and the layout
        """  # noqa: E501
        file = self._file(questions, shared)
        if file.refused:
            raise next(iter(file.refused.values()))
        return self.engine.audit(file.questions, file.shared, fault).to_json()

    def analyze_mask(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Find what is wrong with a packed or padded batch: leaks, hidden keys, positions, cu_seqlens, padding, labels.

        Args:
            batch: The batch, as docs/doctor.md describes it: lengths or segments, attention_mask, position_ids, cu_seqlens, consumer and so on.

        Returns:
            the verdict, the findings with their repair (worst first), and what had to be assumed
        """  # noqa: E501
        _require_no_file(batch)
        return diagnose(batch).as_json()

    def tokenize(self, question: dict[str, Any], shared: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the tokens of a question as the model reads them, through its chat template.

        Args:
            question: An object with a question, messages or prompt_token_ids, as for run; its id may be left out.
            shared: The contexts that its key shared may name, as for run.

        Returns:
            token_ids, and for each token its text and the part of the question that it belongs to (null: the template)
        """
        # Anything else than an object is refused like a question of a run.
        file = self._file([{"id": "question", **question} if isinstance(question, dict) else question], shared)
        if file.refused:
            raise next(iter(file.refused.values()))
        asked = file.questions[0]
        context = next((one for one in file.shared if one.name == asked.shared), None)
        encoder = ChatEncoder(self.engine.tokenizer, self.engine.info.vocab_size)
        prompts = [encoder.encode_shared(context)] if context is not None else []
        prompts.append(encoder.encode(asked, context))
        parts = [part for prompt in prompts for part in _parts(prompt)]
        token_ids = [token_id for prompt in prompts for token_id in prompt.token_ids]
        texts = self.engine.token_texts(token_ids)
        return {"token_ids": token_ids, "tokens": [
            {"id": token_id, "text": text, "part": part}
            for token_id, text, part in zip(token_ids, texts, parts, strict=True)
        ]}

    def _file(self, questions: list[dict[str, Any]], shared: dict[str, Any] | None) -> QuestionsFile:
        """The questions, those over a limit refused among them. Raises InputError for a call of another form."""
        file = parse_questions(SOURCE, {"questions": questions, "shared": shared or {}})
        limit = self.limits.questions
        if limit is not None and len(file.ids) > limit:
            raise TooManyQuestions(len(file.ids), limit)
        for context in file.shared:
            _require_short("shared", context.text + (context.system or ""), self.limits)
        refused = dict(file.refused)
        samples = accumulate(question.n for question in file.questions)
        for question, total in zip(file.questions, samples, strict=True):
            try:
                _require_allowed(question, total, self.limits)
            except InputError as error:
                refused[question.id] = error
        allowed = tuple(question for question in file.questions if question.id not in refused)
        return QuestionsFile(file.ids, allowed, file.shared, refused)


def told(action: Callable[..., Any]) -> Callable[..., Any]:
    """The action with every error as one that a caller of the API can read; unforeseen ones are logged."""

    @wraps(action)
    def act(*arguments: Any, **named: Any) -> Any:
        try:
            return action(*arguments, **named)
        except KevError as error:
            raise gr.Error(str(error), print_exception=False) from error
        except Exception as error:
            _log.error("an API call failed", exc_info=error)
            raise gr.Error(f"the call failed with {type(error).__name__}.", print_exception=False) from error

    return act


def _require_allowed(question: Question, samples: int, limits: Limits) -> None:
    texts = [question.question or "", question.context, question.system or "", question.regex or ""]
    texts += [message.content for message in question.messages or ()]
    _require_short("question", "".join(texts), limits)
    if limits.characters is not None and len(question.prompt_token_ids or ()) > limits.characters:
        raise InvalidField("prompt_token_ids", f"{len(question.prompt_token_ids or ())} ids",
                           f"at most {limits.characters} are allowed", question.id)
    if limits.new_tokens is not None and question.max_new_tokens > limits.new_tokens:
        message = f"max_new_tokens is {question.max_new_tokens} but at most {limits.new_tokens} are allowed."
        raise TokensOverLimit(message, field="max_new_tokens", value=question.max_new_tokens, limit=limits.new_tokens)
    if limits.samples is not None and samples > limits.samples:
        message = f"the run has {samples} samples but at most {limits.samples} are allowed."
        raise SamplesOverLimit(message, field="n", value=samples, limit=limits.samples)


def _require_short(name: str, text: str, limits: Limits) -> None:
    if limits.characters is not None and len(text) > limits.characters:
        message = f"{name} has {len(text)} characters but at most {limits.characters} are allowed; shorten it."
        raise TextOverLimit(message, field=name, value=len(text), limit=limits.characters)


def _require_no_file(value: object) -> None:
    """A caller's machine is not this one: no part of a batch may name a file here."""
    if isinstance(value, dict):
        if "file" in value:
            raise InvalidField("file", value["file"], "send the values themselves; no file of this machine is read")
        for item in value.values():
            _require_no_file(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                _require_no_file(item)


def _parts(prompt: Prompt) -> list[str | None]:
    """The name of the span that each token lies in, None outside of all."""
    names: list[str | None] = [None] * len(prompt.token_ids)
    for span in prompt.spans:
        names[span.start:span.end] = [span.name] * (span.end - span.start)
    return names
