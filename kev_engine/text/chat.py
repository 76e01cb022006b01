"""ChatEncoder: from a question to the token ids of its prompt, through the model's chat template.

    encoder = ChatEncoder(hf_tokenizer, vocab_size)
    prompt = encoder.encode(question)                  # the whole story
    shared_prompt = encoder.encode_shared(shared)      # the beginning of several stories
    prompt = encoder.encode(question, shared)          # the rest of one: story = shared_prompt ids + prompt ids

Layout. A question becomes an optional system message and one user message:

    shared context, blank line, own context, blank line, question

where a part that is empty or blank is left out together with its blank line ("\n\n"). `messages` pass to the template
as they are, `prompt_token_ids` pass by it. The generation prompt of the template ends every prompt. A model without a
chat template gets the user message as plain text behind the BOS of the tokenizer's own rule; with a template, the
template alone decides about BOS, so there is never a second one.

Token ids equal `apply_chat_template(messages, add_generation_prompt=True)` unless a text holds something shaped like a
control token, which stays text (see pieces.py). The border between shared and own tokens is always a token border: the
blank line goes to the side where this tokenizer tends to split by itself, so the joined ids equal the template's too,
but for rare pairs of texts (whitespace at the border, or a tokenizer that splits now here, now there).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, takewhile
from typing import Any

from kev_engine.errors import InvalidField
from kev_engine.schema import Question, SharedContext
from kev_engine.text.pieces import Piece, PieceTokenizer

SEPARATOR = "\n\n"
Turn = tuple[str, list[Piece]]


@dataclass(frozen=True)
class Span:
    """Tokens `[start, end)` of a prompt that hold any character of one text.

    `name` is system, shared, context or question, or the role of a message; `tokens` where ids were handed in.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """Token ids ready for the model; tokens outside of every span were written by the template."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]


class ChatEncoder:
    """Encodes for one tokenizer; safe to use from several threads.

    `vocab_size` is the number of ids the model knows (default: the tokenizer's). Raises ModelUnsupported for a
    tokenizer without a fast form.
    """

    def __init__(self, tokenizer: Any, vocab_size: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._pieces = PieceTokenizer(tokenizer)
        self._vocab_size = len(tokenizer) if vocab_size is None else vocab_size
        self._has_template = bool(tokenizer.chat_template)
        self._nonce = secrets.token_hex(8)

    def encode(self, question: Question, shared: SharedContext | None = None) -> Prompt:
        """The prompt of a question; with `shared`, only the tokens that follow `encode_shared(shared)`.

        Raises InvalidField (naming the question) for a text the template has no place for or refuses, and for ids
        beyond the vocabulary.
        """
        try:
            return self._encode(question, shared)
        except InvalidField as error:
            field = error.field if question.messages is None else "messages"
            raise InvalidField(field, error.value, error.way_out, question.id) from error

    def encode_shared(self, shared: SharedContext) -> Prompt:
        """The prompt that all questions with this shared context begin with, BOS and system text included.

        Raises InvalidField for a blank context and for a system text the template has no place for.
        """
        pieces = self._story(Question("", "question"), shared)
        return self._prompt(pieces[: self._cut(pieces)], is_start=True)

    def _encode(self, question: Question, shared: SharedContext | None) -> Prompt:
        if question.prompt_token_ids is not None:
            return self._take_ids(question.prompt_token_ids)
        if question.shared is not None and shared is None:
            raise InvalidField("shared", question.shared, "no shared context of that name came with it")
        if question.messages is not None:
            turns: list[Turn] = [
                (message.role, [Piece(message.content, message.role)]) for message in question.messages
            ]
            return self._prompt(self._render_pieces(turns, "messages"), is_start=True)
        pieces = self._story(question, shared)
        if shared is None:
            return self._prompt(pieces, is_start=True)
        return self._prompt(pieces[self._cut(pieces) :], is_start=False)

    def _take_ids(self, token_ids: tuple[int, ...]) -> Prompt:
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < self._vocab_size:
                way_out = f"the model knows the ids 0 to {self._vocab_size - 1}"
                raise InvalidField(f"prompt_token_ids[{index}]", token_id, way_out)
        return Prompt(token_ids, (Span("tokens", 0, len(token_ids)),))

    def _story(self, question: Question, shared: SharedContext | None) -> list[Piece]:
        """The pieces of a whole story; the shared text, where there is one, is a piece of its own."""
        if shared is not None and not shared.text.strip():
            raise InvalidField("shared", shared.text, "a shared context must hold some text")
        texts = [("shared", shared.text if shared else ""), ("context", question.context)]
        content: list[Piece] = []
        for name, text in [*texts, ("question", question.question or "")]:
            if text.strip():
                content += [Piece(SEPARATOR)] if content else []
                content.append(Piece(text, name))
        system = shared.system if shared is not None else question.system
        if system and not self._has_template:
            raise InvalidField("system", system, "the model has no chat template; put the text into the context")
        turns: list[Turn] = [("system", [Piece(system, "system")])] if system else []
        turns.append(("user", content))
        return self._render_pieces(turns, "system" if system else "question") if self._has_template else content

    def _cut(self, pieces: Sequence[Piece]) -> int:
        """Where a story's pieces are divided: behind the shared text, or behind the blank line that follows it."""
        at = [index for index, piece in enumerate(pieces) if piece.name == "shared"]
        if len(at) != 1 or pieces[at[0] + 1 : at[0] + 2] != [Piece(SEPARATOR)]:
            raise InvalidField("shared", "".join(pieces[index].text for index in at),
                               "the model's chat template rewrites it; put it into each question's context")
        return at[0] + 1 + self._separator_is_shared

    @cached_property
    def _separator_is_shared(self) -> bool:
        """Whether the blank line belongs to the shared side: where that cut more often gives the joined text's tokens.

        (A tokenizer that joins ".\n\n" into one token needs it, one that splits "\n\nNext" differently must not.)
        """
        return self._count_fits(SEPARATOR, "") > self._count_fits("", SEPARATOR)

    def _count_fits(self, left: str, right: str) -> int:
        """How many probe texts have the same tokens cut in two, with the blank line divided so, as whole."""
        count = 0
        for first, second in product(("word", "word.", "word?", "word!", "(word)", "字。"), ("Next", "下", "1")):
            head = self._pieces.encode([Piece(first + left)])
            tail = self._pieces.encode_after("a" + left, [Piece(right + second)])
            count += head + tail == self._pieces.encode([Piece(first + SEPARATOR + second)])
        return count

    def _prompt(self, pieces: list[Piece], is_start: bool) -> Prompt:
        if is_start:
            start_ids = () if self._has_template else self._pieces.start_ids
            ids = self._pieces.encode(pieces)
        else:
            start_ids = ()
            ids = self._pieces.encode_after("a" + SEPARATOR if self._separator_is_shared else "a", pieces)
        spans = tuple(
            Span(span.name, span.start + len(start_ids), span.end + len(start_ids)) for span in self._spans(pieces, ids)
        )
        return Prompt((*start_ids, *ids), spans)

    def _spans(self, pieces: Sequence[Piece], ids: Sequence[int]) -> Iterator[Span]:
        """Where each text lies among the ids: behind the ids that what precedes it gives, before those of what follows.

        Control tokens stand for themselves whatever surrounds them, so only the stretch between two is compared.
        """
        marks = [0 if piece.name is not None else len(self._pieces.controls(piece.text)) for piece in pieces]
        bounds = [-1, *self._pieces.control_positions(ids), len(ids)]
        for index, piece in enumerate(pieces):
            if piece.name is None:
                continue
            before = sum(marks[:index])
            own = ids[bounds[before] + 1 : bounds[before + 1]]
            first = max((at for at in range(index) if marks[at]), default=0)
            last = min((at for at in range(index + 1, len(pieces)) if marks[at]), default=len(pieces) - 1)
            # A letter stands for the text: whitespace is divided differently before a letter and at the end.
            forerunners = self._pieces.encode([*pieces[first:index], Piece("a")])
            forerunners = forerunners[[-1, *self._pieces.control_positions(forerunners)][-1] + 1 : -1]
            followers = self._pieces.encode_after("a", pieces[index + 1 : last + 1])
            followers = followers[: [*self._pieces.control_positions(followers), len(followers)][0]]
            start = _count_equal(own, forerunners)
            end = max(start, len(own) - _count_equal(own[::-1], followers[::-1]))
            yield Span(piece.name, bounds[before] + 1 + start, bounds[before] + 1 + end)

    def _render_pieces(self, turns: Sequence[Turn], field: str) -> list[Piece]:
        """The rendered chat, divided into what the template and what each text contributed.

        The template is rendered twice, with the texts and with stand-ins for them; the second says where texts lie.
        """
        if not self._has_template:
            raise InvalidField(field, [role for role, _ in turns], "the model has no chat template; ask with question")
        texts = [piece for _, content in turns for piece in content if piece.name is not None and piece.text]
        stand_ins = {id(piece): f"kev{self._nonce}{index:06x}" for index, piece in enumerate(texts)}
        rendered = self._render([(role, "".join(piece.text for piece in content)) for role, content in turns], field)
        outline = self._render(
            [(role, "".join(stand_ins.get(id(piece), piece.text) for piece in content)) for role, content in turns],
            field,
        )
        parts = re.split(f"kev{self._nonce}([0-9a-f]{{6}})", outline)
        order = [int(part, 16) for part in parts[1::2]]
        for index, piece in enumerate(texts):
            if index not in order:
                assert piece.name is not None
                raise InvalidField(piece.name, piece.text, "the model's chat template has no place for it")
        pieces = [Piece(parts[0])]
        for index, literal in zip(order, parts[2::2], strict=True):
            pieces += [texts[index], Piece(literal)]
        fitted = _fit(rendered, pieces)
        if fitted is None:
            return self._rewritten(rendered, parts[::2], texts)
        return [piece for piece in fitted if piece.text]

    def _rewritten(self, rendered: str, literals: Sequence[str], texts: Sequence[Piece]) -> list[Piece]:
        """The rendered chat as one piece, where the template changes texts in a way of its own (drops old thoughts)."""
        expected = [token_id for literal in literals for token_id in self._pieces.controls(literal)]
        if self._pieces.controls(rendered) != expected:
            way_out = "it holds a control token and the model's chat template rewrites it; remove the token"
            raise InvalidField(texts[0].name or "messages", texts[0].text, way_out)
        return [Piece(rendered)]

    def _render(self, messages: Sequence[tuple[str, str]], field: str) -> str:
        chat = [{"role": role, "content": content} for role, content in messages]
        try:
            text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template may raise anything: it is a program that came with the model
            value = [role for role, _ in messages] if field == "messages" else messages[0][1]
            raise InvalidField(field, value, f"the model's chat template refuses it: {error}") from error
        return text


def _fit(rendered: str, pieces: Sequence[Piece]) -> list[Piece] | None:
    """The pieces with each text as the template trimmed it, so that they join to `rendered`; None where none do."""
    reached: dict[int, list[Piece]] = {0: []}
    for piece in pieces:
        text = piece.text
        forms = [text] if piece.name is None else dict.fromkeys([text, text.strip(), text.lstrip(), text.rstrip()])
        reached = {
            at + len(form): [*found, Piece(form, piece.name)]
            for at, found in reached.items() for form in forms if rendered.startswith(form, at)
        }
    return reached.get(len(rendered))


def _count_equal(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
