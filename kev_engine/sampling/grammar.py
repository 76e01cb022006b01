"""Grammar: which tokens may come next, so that an answer fits a JSON schema, a regex or one of several choices.

    tokenizer = GrammarTokenizer(hf_tokenizer, vocab_size, stop_ids)     # once for a model; built at first use
    grammar = compile_grammar(question, tokenizer)                       # None: the question is free
    allowed = grammar.mask()                                             # [V] bool, for RowState.allowed
    grammar.consume(token_id)
    grammar.is_done                                                      # nothing but the end may follow
    grammar.rollback(2)                                                  # two tokens were rejected

Once the text is complete, the mask lets the model's stop ids through; after `is_done` it lets nothing else. Between the
parts of JSON at most one space is allowed, so that no answer runs on in blanks. A regex describes the whole text,
without look-around or back-references; `\\d` means 0 to 9, `\\w` and `\\s` are Unicode's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, regex_to_lark
from llguidance.hf import from_tokenizer

from kev_engine.errors import InvalidField
from kev_engine.schema import Question

_BLANKS = {"whitespace_pattern": "[ ]?"}


class GrammarTokenizer:
    """The bytes of every token, as grammars need them; `vocab_size` is the width of the model's logits."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.stop_ids = tuple(stop_ids)

    @cached_property
    def table(self) -> LLTokenizer:
        width = max(self.vocab_size, len(self._tokenizer))
        return from_tokenizer(self._tokenizer, n_vocab=width, eos_token=list(self.stop_ids))


class Grammar:
    """How far one answer has come in its grammar."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def mask(self) -> torch.Tensor:
        """The tokens that may come next, `[V]` bool on the CPU."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
        return torch.from_numpy(allowed.view(np.bool_))

    def consume(self, token_id: int) -> None:
        """Go on by one token. Raises ValueError for one that `mask` does not allow, after which nothing has changed."""
        if self.count_allowed([token_id]) != 1:
            raise ValueError(f"token {token_id} is not allowed here")
        self._matcher.consume_token(token_id)

    def rollback(self, num_tokens: int) -> None:
        """Forget the last tokens. Raises ValueError where fewer were consumed."""
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise ValueError(f"fewer than {num_tokens} tokens were consumed")

    def count_allowed(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens, from the first on, may follow here; nothing is consumed."""
        return int(self._matcher.validate_tokens(list(token_ids)))

    def copy(self) -> Grammar:
        """The same state, to go on by itself: one for each sample of a question."""
        return Grammar(self._matcher.deep_copy(), self._vocab_size)

    @property
    def is_complete(self) -> bool:
        """Whether the text so far fits as a whole."""
        return bool(self._matcher.is_accepting())

    @property
    def is_done(self) -> bool:
        """Whether the text fits and can only end here."""
        return self.is_complete and bool(self._matcher.is_stopped())


def compile_grammar(question: Question, tokenizer: GrammarTokenizer) -> Grammar | None:
    """The grammar of a question at its start, or None for a free one.

    Raises InvalidField for a schema or regex that cannot be read or enforced exactly, and for one that no text fits.
    """
    field, source = _source(question)
    if source is None:
        return None
    matcher = LLMatcher(tokenizer.table, source, log_level=0)
    grammar = Grammar(matcher, tokenizer.vocab_size)
    if matcher.is_error() or not grammar.mask().any() or matcher.is_error():
        way_out = f"it cannot be enforced: {_reason(matcher.get_error())}"
        raise InvalidField(field, getattr(question, field), way_out, question.id)
    return grammar


def _reason(error: str) -> str:
    """The one line that matters of the matcher's error: of a regex's, the one behind the picture of the place."""
    lines = error.split("\n<state>")[0].strip().splitlines()
    named = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (named or ["no text fits it" if not lines or lines[0].startswith("NoExtension") else lines[0]])[0]


def _source(question: Question) -> tuple[str, str | None]:
    if question.json_schema is not None:
        schema = json.dumps(dict(question.json_schema))
        return "json_schema", LLMatcher.grammar_from_json_schema(schema, overrides=_BLANKS)
    if question.regex is not None:
        if not question.regex:
            raise InvalidField("regex", "", "it must hold at least one character", question.id)
        return "regex", LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(question.regex, use_ascii='d')}/")
    if question.choices is not None:
        if not question.choices or not all(question.choices):
            raise InvalidField("choices", list(question.choices), "give one or more texts, none empty", question.id)
        return "choices", LLMatcher.grammar_from_regex("|".join(map(_literal, question.choices)))
    return "", None


def _literal(text: str) -> str:
    """The regex that matches this text alone."""
    return "".join(sign if sign.isascii() and sign.isalnum() else f"\\x{{{ord(sign):x}}}" for sign in text)
