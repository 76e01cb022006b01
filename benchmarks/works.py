"""The works that are raced: the same token ids for every contestant, cut from the text of the LICENSE.

Each round has its own cut, so that no prompt of one round is the beginning of a prompt of another and nothing can be
answered from a cache that an earlier round filled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kev_engine.schema import Question, SamplingParams, SharedContext
from kev_engine.text.chat import ChatEncoder

TEXT = Path(__file__).parents[1] / "LICENSE"
W8_LENGTHS = (107, 148, 190, 232, 270, 312, 360, 455)
"""2,074 tokens together."""
SHARED_TOKENS, LONG_TOKENS = 2000, 1500
ARRIVAL_SECONDS = 0.3
ADAPTERS = ("a", "b", "c", "d", None, "a", "b", "c")


@dataclass(frozen=True)
class Work:
    """`prompts[k]` is the whole story of question k, shared context included, as a contestant without sharing sees it.

    `arrival_seconds` is the time between two arrivals; 0 means all at once.
    """

    name: str
    summary: str
    questions: tuple[Question, ...]
    prompts: tuple[tuple[int, ...], ...]
    shared: tuple[SharedContext, ...] = ()
    arrival_seconds: float = 0.0

    @property
    def new_tokens(self) -> int:
        """New tokens of each question."""
        return self.questions[0].max_new_tokens

    @property
    def adapters(self) -> tuple[str | None, ...]:
        return tuple(question.adapter for question in self.questions)


@dataclass(frozen=True)
class Cutter:
    """Cuts prompts out of one text, differently in each round."""

    tokenizer: Any
    round: int
    ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", self.tokenizer(TEXT.read_text()).input_ids)

    def cut(self, number: int, length: int) -> tuple[int, ...]:
        """`length` tokens from a place that belongs to this round and number, around the end of the text."""
        start = 149 * self.round + 211 * number
        return tuple(self.ids[(start + index) % len(self.ids)] for index in range(length))

    def given(self, name: str, summary: str, lengths: tuple[int, ...], new_tokens: int) -> Work:
        """A work whose prompts are cuts of these lengths."""
        prompts = tuple(self.cut(number, length) for number, length in enumerate(lengths))
        questions = tuple(
            Question(f"q{number}", prompt_token_ids=prompt, max_new_tokens=new_tokens, ignore_eos=True,
                     sampling=SamplingParams(temperature=0.0))
            for number, prompt in enumerate(prompts)
        )
        return Work(name, summary, questions, prompts)


def w8(cutter: Cutter) -> Work:
    return cutter.given("W8", "8 prompts of 107–455 tokens, 64 new tokens each", W8_LENGTHS, 64)


def w1(cutter: Cutter) -> Work:
    return cutter.given("W1", "one prompt of 190 tokens, 64 new tokens", (190,), 64)


def w32(cutter: Cutter) -> Work:
    return cutter.given("W32", "32 prompts of 20–51 tokens, 32 new tokens each", tuple(range(20, 52)), 32)


def wl(cutter: Cutter) -> Work:
    return cutter.given("WL", "4 prompts of 1,500 tokens, 32 new tokens each", (LONG_TOKENS,) * 4, 32)


def ws(cutter: Cutter) -> Work:
    """Sixteen questions, in words, over one shared context."""
    context = SharedContext("licence", cutter.tokenizer.decode(cutter.cut(0, SHARED_TOKENS)))
    questions = tuple(
        Question(f"q{number}", f"{number + 1}. What does the text say about {topic}?", shared=context.name,
                 max_new_tokens=16, ignore_eos=True, sampling=SamplingParams(temperature=0.0))
        for number, topic in enumerate((
            "patents", "trademarks", "warranty", "liability", "derivative works", "contributions", "the NOTICE file",
            "redistribution", "copyright", "source form", "object form", "the licensor", "legal entities", "modified "
            "files", "termination", "additional liability",
        ))
    )
    encoder = ChatEncoder(cutter.tokenizer)
    above = encoder.encode_shared(context).token_ids
    prompts = tuple(above + encoder.encode(question, context).token_ids for question in questions)
    return Work("WS", "16 questions over one shared context of 2,000 tokens, 16 new tokens each", questions, prompts,
                (context,))


def wa(cutter: Cutter) -> Work:
    plain = w8(cutter)
    questions = tuple(
        replace(question, adapter=adapter) for question, adapter in zip(plain.questions, ADAPTERS, strict=True)
    )
    return replace(plain, name="WA", summary="W8 under 4 adapters of rank 8 and the base", questions=questions)


def wc(cutter: Cutter) -> Work:
    return replace(
        w8(cutter), name="WC", summary="W8 arriving one by one, every 300 ms", arrival_seconds=ARRIVAL_SECONDS
    )


WORKS: dict[str, Callable[[Cutter], Work]] = {
    "W8": w8, "W1": w1, "W32": w32, "WL": wl, "WS": ws, "WA": wa, "WC": wc,
}
