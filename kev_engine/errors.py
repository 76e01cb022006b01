"""Every error the engine raises on purpose.

    KevError
    ├── InputError               what a caller handed in cannot be used
    │   ├── InvalidField         one field of a question, a shared context or a setting
    │   ├── PromptTooLong        more tokens than the model or the KV budget holds
    │   ├── TooManyQuestions     more questions than the engine was configured for
    │   ├── UnknownAdapter       no adapter of that name is loaded
    │   ├── FootprintRefused     a configuration whose memory is not keys and values by token and head
    │   └── UnreadableFile       a questions file, a batch file or an array file
    ├── ModelError               a model that cannot be had or cannot be packed
    │   ├── ModelNotFound        the source names nothing
    │   ├── ModelUnreachable     the hub did not answer, or answered with a failure
    │   ├── ModelIncomplete      files are missing, truncated or of the wrong digest
    │   ├── NotEnoughSpace       disk or memory too small, with both numbers
    │   └── ModelUnsupported     its layers cannot keep packed segments apart
    ├── LoadCancelled            whoever watched a load's progress ended it; nothing half-made is left
    ├── AdapterRefused           an adapter file that cannot be applied exactly
    ├── EngineBusy               the queue is full; nothing was started
    ├── EngineFailed             a step raised; the runs in it ended, the engine goes on
    ├── UnusableLogits           a row of logits from which no token can be drawn; it ends that question only
    └── EngineClosed             the engine was closed before or while this run waited

Each message is one sentence that names the field, the value and the way out. `code` and `facts` carry the same
knowledge for programs and for other languages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar


class KevError(Exception):
    """The root: catching it catches everything the engine raises on purpose."""

    code = "kev"

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.facts: Mapping[str, object] = facts


class InputError(KevError):
    code = "input"


class InvalidField(InputError):
    """One field holds a value that cannot be used; `question_id` says whose, where it belongs to a question."""

    code = "invalid_field"

    def __init__(self, field: str, value: object, way_out: str, question_id: str | None = None) -> None:
        self.field = field
        self.value = value
        self.way_out = way_out
        self.question_id = question_id
        owner = f"question {question_id!r}: " if question_id is not None else ""
        super().__init__(
            f"{owner}{field} is {shorten(value)}, but {way_out}.",
            field=field, value=shorten(value), way_out=way_out, question_id=question_id,
        )


class PromptTooLong(InputError):
    """A question needs more tokens than `limit`; `holder`, a key of HOLDERS, says what is too small."""

    code = "prompt_too_long"
    HOLDERS: ClassVar[Mapping[str, str]] = {"model": "the model's context", "kv": "the KV budget"}

    def __init__(
        self, num_tokens: int, limit: int, holder: str, question_id: str | None = None, way_out: str = ""
    ) -> None:
        self.num_tokens = num_tokens
        self.limit = limit
        self.question_id = question_id
        owner = f"question {question_id!r}" if question_id is not None else "the question"
        room = f"{self.HOLDERS[holder]} holds {limit}"
        way_out = way_out or "shorten the context or ask for fewer new tokens"
        super().__init__(
            f"{owner} needs {num_tokens} tokens (prompt and new tokens) but {room}; {way_out}.",
            num_tokens=num_tokens, limit=limit, holder=holder, question_id=question_id,
        )


class TooManyQuestions(InputError):
    code = "too_many_questions"

    def __init__(self, count: int, limit: int) -> None:
        self.count = count
        self.limit = limit
        super().__init__(
            f"the run has {count} questions but at most {limit} are allowed; split it into several runs.",
            count=count, limit=limit,
        )


class UnknownAdapter(InputError):
    """No adapter of this name is loaded; the base model is never used in its place."""

    code = "unknown_adapter"

    def __init__(self, name: str, loaded: Sequence[str], question_id: str | None = None) -> None:
        self.name = name
        self.loaded = tuple(loaded)
        self.question_id = question_id
        near = get_close_matches(name, self.loaded, n=1, cutoff=0.5)
        self.nearest = near[0] if near else None
        owner = f"question {question_id!r}: " if question_id is not None else ""
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ";"
        have = ", ".join(self.loaded) if self.loaded else "none"
        super().__init__(
            f"{owner}adapter {name!r} is not loaded{hint} Loaded: {have}.",
            name=name, loaded=have, nearest=self.nearest, question_id=question_id,
        )


class FootprintRefused(InputError):
    """Such a model cannot be planned for; `reason` is mla, state, disagrees, encoder_decoder or no_decoder."""

    code = "footprint_refused"

    def __init__(self, reason: str, why: str, **facts: object) -> None:
        self.reason = reason
        super().__init__(f"the memory of this model cannot be planned: {why}.", reason=reason, **facts)


class UnreadableFile(InputError):
    """A file cannot be used; `where` names the key, row or line at fault."""

    code = "unreadable_file"

    def __init__(self, path: str, where: str, way_out: str) -> None:
        self.path = path
        self.where = where
        super().__init__(f"{path}: {where}: {way_out}.", path=path, where=where, way_out=way_out)


class ModelError(KevError):
    code = "model"


class ModelNotFound(ModelError):
    code = "model_not_found"


class ModelUnreachable(ModelError):
    code = "model_unreachable"


class ModelIncomplete(ModelError):
    code = "model_incomplete"


class NotEnoughSpace(ModelError):
    code = "not_enough_space"

    def __init__(self, what: str, needed_bytes: int, free_bytes: int, way_out: str) -> None:
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"{what} needs {needed_bytes:,} bytes but {free_bytes:,} are free; {way_out}.",
            what=what, needed_bytes=needed_bytes, free_bytes=free_bytes, way_out=way_out,
        )


class ModelUnsupported(ModelError):
    code = "model_unsupported"


class LoadCancelled(KevError):
    """A `Progress` may raise it: the load ends there, files that have arrived are kept and nothing half-made is."""

    code = "load_cancelled"

    def __init__(self, name: str) -> None:
        super().__init__(f"the load of {name} was cancelled; load it again to go on.", name=name)


class AdapterRefused(KevError):
    """An adapter was not loaded; `reason` says what in it cannot be applied exactly, and nothing was changed.

    `kind` is the reason's name in adapters/reasons.py, and the facts are what it was filled from.
    """

    code = "adapter_refused"

    def __init__(self, name: str, reason: str, kind: str = "", **facts: object) -> None:
        self.name = name
        self.reason = reason
        self.kind = kind
        super().__init__(f"adapter {name!r} was refused: {reason}.", name=name, reason=reason, kind=kind, **facts)


class EngineBusy(KevError):
    """The queue is full; `waiting` of `limit` places are taken and nothing of this run was started."""

    code = "engine_busy"

    def __init__(self, waiting: int, limit: int, kv_bytes_used: int, kv_bytes_budget: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(
            f"the queue holds {waiting} of {limit} questions and KV memory {kv_bytes_used:,} of {kv_bytes_budget:,} "
            "bytes; try again when some have finished.",
            waiting=waiting, limit=limit, kv_bytes_used=kv_bytes_used, kv_bytes_budget=kv_bytes_budget,
        )


class EngineFailed(KevError):
    """A step raised `cause`; every run that took part ended with this error and its blocks were freed."""

    code = "engine_failed"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"a step failed with {type(cause).__name__}: {cause}; the run was ended and the engine goes on.",
            cause=f"{type(cause).__name__}: {cause}",
        )
        self.__cause__ = cause


class UnusableLogits(KevError):
    code = "unusable_logits"

    def __init__(self, question_id: str, reason: str) -> None:
        self.question_id = question_id
        super().__init__(f"question {question_id!r}: {reason}.", question_id=question_id, reason=reason)


class EngineClosed(KevError):
    code = "engine_closed"

    def __init__(self) -> None:
        super().__init__("the engine is closed; start a new one.")


def shorten(value: object, limit: int = 80) -> str:
    """The value as a person recognises it, in at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
