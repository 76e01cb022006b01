"""The values that cross the engine's border: what is asked, what is answered. No torch.

(The events of a stream carry layouts and step plans; they live in runtime/events.py.)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kev_engine.errors import InvalidField

PENALTIES, TEMPERATURE, TOP_K, TOP_P, MIN_P = "penalties", "temperature", "top_k", "top_p", "min_p"
DEFAULT_ORDER = (PENALTIES, TEMPERATURE, TOP_K, TOP_P, MIN_P)
PENALTIES_LAST = (TEMPERATURE, TOP_K, TOP_P, MIN_P, PENALTIES)


@dataclass(frozen=True)
class SamplingParams:
    """How the next token of one question is chosen.

    `temperature` None: the run's version of the default; 0: greedy. `top_k` 0, `top_p` 1 and `min_p` 0 switch those
    cuts off. `repetition_penalty` looks at prompt and output, `presence_penalty` and `frequency_penalty` at the
    output. `seed` None: drawn fresh and recorded. `order` is the order in which the steps are applied.
    """

    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    order: tuple[str, ...] = DEFAULT_ORDER

    def __post_init__(self) -> None:
        if self.temperature is not None:
            _number("temperature", self.temperature, 0, 100, "a number from 0 (greedy) to 100")
        _whole("top_k", self.top_k, 0, None, "a whole number of 0 (off) or more")
        _number("top_p", self.top_p, 0, 1, "a number above 0 and at most 1 (off)", low_open=True)
        _number("min_p", self.min_p, 0, 1, "a number from 0 (off) to below 1", high_open=True)
        _number("repetition_penalty", self.repetition_penalty, 0, 100, "a number above 0 (1 = off)", low_open=True)
        _number("presence_penalty", self.presence_penalty, -100, 100, "a number from -100 to 100 (0 = off)")
        _number("frequency_penalty", self.frequency_penalty, -100, 100, "a number from -100 to 100 (0 = off)")
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**63 - 1, "a whole number from 0 to 2^63 - 1, or empty")
        if sorted(self.order) != sorted(DEFAULT_ORDER):
            raise InvalidField("order", list(self.order), f"it must name each of {', '.join(DEFAULT_ORDER)} once")


@dataclass(frozen=True)
class Message:
    """One turn of a chat: `role` is system, user or assistant (or what the model's template knows)."""

    role: str
    content: str


@dataclass(frozen=True)
class SharedContext:
    """A context that several questions of a run may name; `system` belongs to it, not to its readers."""

    name: str
    text: str
    system: str | None = None


@dataclass(frozen=True)
class Question:
    """One question of a run, with its own context, adapter and sampling.

    Exactly one of `question`, `messages` and `prompt_token_ids` is given. `n` samples are drawn; `draft` is the number
    of tokens a prompt-lookup draft may propose (0 = off). `logprobs` asks for the log-probability of every drawn token
    and the five likeliest in its place, `prompt_logprobs` for those of the prompt's tokens. Under the policy
    of that name, higher `priority` goes first.
    """

    id: str
    question: str | None = None
    context: str = ""
    messages: tuple[Message, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    shared: str | None = None
    system: str | None = None
    adapter: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    json_schema: Mapping[str, Any] | None = None
    regex: str | None = None
    choices: tuple[str, ...] | None = None
    draft: int = 0
    logprobs: bool = False
    prompt_logprobs: bool = False
    priority: int = 0

    def __post_init__(self) -> None:
        try:
            self._check()
        except InvalidField as error:
            if error.question_id is None:
                raise InvalidField(error.field, error.value, error.way_out, self.id) from None
            raise

    def _check(self) -> None:
        given = [name for name in ("question", "messages", "prompt_token_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) if given else "nothing"
            raise InvalidField("question", what, "give exactly one of question, messages and prompt_token_ids")
        if self.question is not None and not self.question.strip():
            raise InvalidField("question", self.question, "it must hold some text")
        if self.messages is not None and not self.messages:
            raise InvalidField("messages", [], "a chat has at least one message")
        if self.prompt_token_ids is not None and not self.prompt_token_ids:
            raise InvalidField("prompt_token_ids", [], "a prompt has at least one token")
        if self.question is None:
            for name in ("context", "system", "shared"):
                if getattr(self, name):
                    raise InvalidField(name, getattr(self, name), f"it cannot be combined with {given[0]}")
        if self.shared is not None and self.system is not None:
            raise InvalidField("system", self.system, f"it belongs to the shared context {self.shared!r}; set it there")
        _whole("max_new_tokens", self.max_new_tokens, 1, None, "a whole number of 1 or more")
        _whole("n", self.n, 1, None, "a whole number of 1 or more")
        _whole("draft", self.draft, 0, 64, "a whole number from 0 (off) to 64")
        _whole("priority", self.priority, -100, 100, "a whole number from -100 to 100, higher first")
        for index, text in enumerate(self.stop):
            if not text:
                raise InvalidField(f"stop[{index}]", text, "a stop string holds at least one character")
        structured = [name for name in ("json_schema", "regex", "choices") if getattr(self, name) is not None]
        if len(structured) > 1:
            second = structured[1]
            raise InvalidField(second, getattr(self, second), f"it cannot be combined with {structured[0]}")

    @classmethod
    def from_json(cls, row: object) -> Question:
        """The question that one JSON object describes, with flat sampling keys; every key but `id` may be absent.

        Raises InvalidField for an unknown key, a wrong type and a value out of range.
        """
        if not isinstance(row, Mapping):
            raise InvalidField("question", row, "each question must be a JSON object")
        question_id = row.get("id")
        if not isinstance(question_id, str) or not question_id:
            raise InvalidField("id", question_id, "each question needs a text id")
        try:
            return _read_question(cls, question_id, row)
        except InvalidField as error:
            if error.question_id is None:
                raise InvalidField(error.field, error.value, error.way_out, question_id) from None
            raise


    def to_json(self) -> dict[str, object]:
        """The JSON object that `from_json` reads as this question; what is at its default is left out."""
        row: dict[str, object] = {"id": self.id}
        for name, item in _QUESTION_KEYS.items():
            value = getattr(self, name)
            if name != "id" and value != item.default:
                row[name] = list(value) if isinstance(value, tuple) else value
        if self.messages is not None:
            row["messages"] = [{"role": turn.role, "content": turn.content} for turn in self.messages]
        plain = SamplingParams()
        for name in _SAMPLING_KEYS:
            value = getattr(self.sampling, name)
            if value != getattr(plain, name):
                row[name] = list(value) if isinstance(value, tuple) else value
        return row


_SAMPLING_KEYS = {item.name: item for item in fields(SamplingParams)}
_QUESTION_KEYS = {item.name: item for item in fields(Question) if item.name != "sampling"}
QUESTION_KEYS = (*_QUESTION_KEYS, *_SAMPLING_KEYS)
"""What a question's JSON object may hold."""
_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,), "question": (str,), "context": (str,), "shared": (str,), "system": (str,), "adapter": (str,),
    "regex": (str,), "json_schema": (Mapping,), "ignore_eos": (bool,), "logprobs": (bool,),
    "prompt_logprobs": (bool,), "messages": (list, tuple),
    "prompt_token_ids": (list, tuple), "stop": (list, tuple), "choices": (list, tuple), "order": (list, tuple),
}
_TYPE_WORDS = {str: "text", Mapping: "a JSON object", bool: "true or false", list: "a list"}


def _read_question(cls: type[Question], question_id: str, row: Mapping[str, object]) -> Question:
    sampling: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in QUESTION_KEYS:
            known = ", ".join(QUESTION_KEYS)
            raise InvalidField(str(key), value, f"a question has no such key; known: {known}", question_id)
        kinds = _TYPES.get(key)
        if value is None:
            continue
        if kinds is not None and not isinstance(value, kinds):
            raise InvalidField(key, value, f"it must be {_TYPE_WORDS[kinds[0]]}")
        if isinstance(value, (list, tuple)):
            value = _read_list(key, value)
        (sampling if key in _SAMPLING_KEYS else values)[key] = value
    return cls(**values, sampling=SamplingParams(**sampling))


def _read_list(key: str, items: Sequence[object]) -> tuple[object, ...]:
    if key == "messages":
        return tuple(_read_message(index, item) for index, item in enumerate(items))
    if key == "prompt_token_ids":
        for index, item in enumerate(items):
            _whole(f"{key}[{index}]", item, 0, None, "a token id is a whole number of 0 or more")
        return tuple(items)
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise InvalidField(f"{key}[{index}]", item, "it must be text")
    return tuple(items)


def _read_message(index: int, item: object) -> Message:
    shape = isinstance(item, Mapping) and set(item) == {"role", "content"}
    if not shape or not all(isinstance(value, str) for value in item.values()):  # type: ignore[attr-defined]
        raise InvalidField(f"messages[{index}]", item, 'it must be {"role": text, "content": text}')
    assert isinstance(item, Mapping)
    return Message(item["role"], item["content"])


def _number(
    name: str, value: object, low: float, high: float, what: str, low_open: bool = False, high_open: bool = False
) -> None:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if right:
        assert isinstance(value, (int, float))
        right = (low < value if low_open else low <= value) and (value < high if high_open else value <= high)
    if not right:
        raise InvalidField(name, value, f"it must be {what}")


def _whole(name: str, value: object, low: int, high: int | None, what: str) -> None:
    right = isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high)
    if not right:
        raise InvalidField(name, value, f"it must be {what}")


@dataclass(frozen=True)
class TokenLogprob:
    """Natural-log probability of one token under the model's own distribution (temperature 1, no cuts)."""

    token_id: int
    logprob: float

    def to_json(self) -> dict[str, object]:
        return {"token_id": self.token_id, "logprob": self.logprob}


@dataclass(frozen=True)
class Answer:
    """What one question got: the text, how it was drawn, and what it cost.

    `finish_reason` is stop, length, cancelled or error; `error` holds the sentence in the last case. Times are in ms
    from submit (TTFT, first readable text) and the mean between later tokens (TPOT); None where there was none.
    `logprobs[i]` and `alternatives[i]` (the five likeliest, likeliest first) belong to `token_ids[i]`;
    `prompt_logprobs[p]` to the prompt's token p, None for the first, which nothing predicts. Each is empty where it was
    not asked for. Of `draft_proposed` guessed tokens `draft_accepted` were drawn.
    """

    question_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    sampling: SamplingParams
    max_new_tokens: int
    prompt_tokens: int
    temperature_version: int
    error: str | None = None
    matched_stop: str | None = None
    adapter: str | None = None
    adapter_version: str | None = None
    cached_tokens: int = 0
    sample: int = 0
    queue_ms: float | None = None
    ttft_ms: float | None = None
    first_text_ms: float | None = None
    tpot_ms: float | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    alternatives: tuple[tuple[TokenLogprob, ...], ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()
    draft_proposed: int = 0
    draft_accepted: int = 0

    @property
    def output_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def tokens_per_second(self) -> float | None:
        """How fast it went on after the first token; None where there was no second."""
        return 1000 / self.tpot_ms if self.tpot_ms else None

    @property
    def prompt_perplexity(self) -> float | None:
        """exp of the mean negative log-probability of the prompt's tokens; None where it was not asked for, where the
        prompt is one token, and where it is too large for a float."""
        scored = [item.logprob for item in self.prompt_logprobs if item is not None]
        mean = -math.fsum(scored) / len(scored) if scored else math.inf
        return math.exp(mean) if mean < math.log(sys.float_info.max) else None

    def to_json(self) -> dict[str, object]:
        """The answer as the command line prints it; log-probabilities only where they were asked for."""
        sampling = {item.name: getattr(self.sampling, item.name) for item in fields(self.sampling)}
        row: dict[str, object] = {
            "id": self.question_id, "text": self.text, "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason, "error": self.error,
            "adapter": self.adapter, "adapter_version": self.adapter_version,
            "temperature_version": self.temperature_version,
            "sampling": {**sampling, "order": list(self.sampling.order), "max_new_tokens": self.max_new_tokens},
            "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens, "queue_ms": self.queue_ms, "ttft_ms": self.ttft_ms,
            "first_text_ms": self.first_text_ms, "tpot_ms": self.tpot_ms, "sample": self.sample,
            "matched_stop": self.matched_stop,
            "draft_proposed": self.draft_proposed, "draft_accepted": self.draft_accepted,
        }
        if self.logprobs:
            pairs = zip(self.logprobs, self.alternatives, strict=True)
            row["logprobs"] = [
                {**chosen.to_json(), "alternatives": [item.to_json() for item in others]} for chosen, others in pairs
            ]
        if self.prompt_logprobs:
            row["prompt_logprobs"] = [None if item is None else item.to_json() for item in self.prompt_logprobs]
            row["prompt_perplexity"] = self.prompt_perplexity
        return row


@dataclass(frozen=True)
class RunStats:
    """Figures of one run. `tokens_per_forward[i]` and `sequences_per_forward[i]` belong to the run's i-th forward.

    `cached_tokens` of the prompts were taken from the prefix cache, by `prefix_hits` stories. `preemptions` counts how
    often a sequence gave its memory back before it was done.
    """

    model: str
    backend: str
    dtype: str
    kv_dtype: str = ""
    seconds: float = 0.0
    tokens_per_forward: tuple[int, ...] = ()
    sequences_per_forward: tuple[int, ...] = ()
    kv_bytes_peak: int = 0
    kv_bytes_predicted: int = 0
    kv_bytes_budget: int = 0
    blocks_leaked: int = 0
    plan_ms: float = 0.0
    forward_ms: float = 0.0
    sample_ms: float = 0.0
    text_ms: float = 0.0
    draft_accepted: int = 0
    draft_proposed: int = 0
    prefix_hits: int = 0
    cached_tokens: int = 0
    preemptions: int = 0

    def to_json(self) -> dict[str, object]:
        """The figures as the command line prints them."""
        row: dict[str, object] = {item.name: getattr(self, item.name) for item in fields(self)}
        row["forwards"] = len(self.tokens_per_forward)
        row["tokens_per_forward"] = list(self.tokens_per_forward)
        row["sequences_per_forward"] = list(self.sequences_per_forward)
        return row


@dataclass(frozen=True)
class Run:
    """What `Engine.ask` returns: the answers in the order asked, and the run's figures."""

    answers: tuple[Answer, ...]
    stats: RunStats

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens of all answers together, from submit to the last of them; None for a run without time."""
        output = sum(answer.output_tokens for answer in self.answers)
        return output / self.stats.seconds if self.stats.seconds else None


def with_temperature(params: SamplingParams, default: float) -> SamplingParams:
    """The same parameters with the default filled in where no temperature was set."""
    return params if params.temperature is not None else replace(params, temperature=default)
