"""What a run's own figures say about it: where its time went, which roof bound it, and what would move it. Pure.

    explain(notes, facts, cost, machine)      an Explanation of one run
    compare(now, before)                      what changed since the run before

A step that reads prompt tokens counts as prefill, the others as decode. Operations and bytes of a forward are those of
the model's own matrices, attention included; activations and adapters are small beside them and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TTFT, TPOT = "ttft", "tpot"
COMPUTE, MEMORY = "compute", "memory"


class Roofs(Protocol):
    """A measured machine (kev_engine/runtime/machine.py)."""

    @property
    def flops_per_second(self) -> float: ...

    @property
    def bytes_per_second(self) -> float: ...


@dataclass(frozen=True)
class StepNote:
    """One forward: its tokens, those of prompts, its sequences and drawn rows; `cells` are (query, key) pairs and
    `keys` the keys read, both for one layer and head."""

    num_tokens: int
    prompt_tokens: int
    num_sequences: int
    num_rows: int
    cells: int
    keys: int
    forward_ms: float
    other_ms: float = 0.0


@dataclass(frozen=True)
class Cost:
    """What a token costs: weights in the layers and in the output matrix, their size, and the shape of attention."""

    body_weights: int
    head_weights: int
    weight_size: int
    num_layers: int
    num_heads: int
    head_dim: int
    kv_bytes_per_token: int

    def flops(self, note: StepNote) -> int:
        """A multiplication and an addition for each weight a token passes, and for each cell in QK and in PV."""
        attention = 4 * self.num_layers * self.num_heads * self.head_dim * note.cells
        return 2 * self.body_weights * note.num_tokens + 2 * self.head_weights * note.num_rows + attention

    def weight_bytes(self, note: StepNote) -> int:
        """Every weight once, however many tokens pass it; the output matrix where a token is drawn."""
        return (self.body_weights + (self.head_weights if note.num_rows else 0)) * self.weight_size

    def kv_bytes(self, note: StepNote) -> int:
        """The keys and values read, and those written."""
        return (note.keys + note.num_tokens) * self.kv_bytes_per_token


@dataclass(frozen=True)
class Phase:
    """The forwards of one kind together. Milliseconds are those of the forwards alone."""

    forwards: int = 0
    tokens: int = 0
    sequences: int = 0
    ms: float = 0.0
    flops: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0
    roof: str | None = None
    roof_ms: float | None = None

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes

    @property
    def intensity(self) -> float:
        """Operations for each byte moved."""
        return self.flops / self.num_bytes if self.num_bytes else 0.0

    @property
    def reached(self) -> float | None:
        """The share of the time that the roof alone would take: 1 = as fast as this machine can."""
        return self.roof_ms / self.ms if self.roof_ms is not None and self.ms else None


@dataclass(frozen=True)
class RunFacts:
    """What else is known of a run; token counts of prompts, times in ms as means over its answers."""

    prompt_tokens: int
    cached_tokens: int
    common_tokens: int
    """Tokens that questions of different segments begin with alike and that were stored more than once."""
    output_tokens: int
    kv_peak_share: float
    preemptions: int
    ttft_ms: float | None
    tpot_ms: float | None
    queue_ms: float | None
    draft_proposed: int = 0
    draft_accepted: int = 0
    model: str = ""
    """Identifies weights, tokenizer and template."""


@dataclass(frozen=True)
class Lever:
    """Something that would move TTFT or TPOT; `name` is a key of the catalogue, `facts` fill its sentence."""

    moves: str
    name: str
    facts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Explanation:
    """One run explained. `other_ms` is planning, drawing and text, outside of the forwards."""

    prefill: Phase
    decode: Phase
    other_ms: float
    machine: Roofs | None
    facts: RunFacts
    levers: tuple[Lever, ...]

    @property
    def total_ms(self) -> float:
        return self.prefill.ms + self.decode.ms + self.other_ms


def explain(notes: Sequence[StepNote], facts: RunFacts, cost: Cost, machine: Roofs | None) -> Explanation:
    """The run's phases against the machine's roofs, and the levers that its figures point at, strongest first."""
    prefill = _phase([note for note in notes if note.prompt_tokens], cost, machine)
    decode = _phase([note for note in notes if not note.prompt_tokens], cost, machine)
    other = sum(note.other_ms for note in notes)
    mixed = sum(note.num_sequences > 1 and 0 < note.prompt_tokens < note.num_tokens for note in notes)
    levers = (*_first_token(prefill, facts), *_later_tokens(decode, other, mixed, facts))
    return Explanation(prefill, decode, other, machine, facts, levers)


def _phase(notes: Sequence[StepNote], cost: Cost, machine: Roofs | None) -> Phase:
    flops = sum(cost.flops(note) for note in notes)
    weights, kv = sum(cost.weight_bytes(note) for note in notes), sum(cost.kv_bytes(note) for note in notes)
    roof = roof_ms = None
    if machine is not None and notes:
        by_compute, by_memory = flops / machine.flops_per_second * 1e3, (weights + kv) / machine.bytes_per_second * 1e3
        roof, roof_ms = (COMPUTE, by_compute) if by_compute >= by_memory else (MEMORY, by_memory)
    return Phase(len(notes), sum(note.num_tokens for note in notes), sum(note.num_sequences for note in notes),
                 sum(note.forward_ms for note in notes), flops, weights, kv, roof, roof_ms)


WAITED, HIDDEN, CROWDED, ALIKE, LOW = 0.3, 0.4, 0.9, 0.25, 0.3
"""Shares from which on something is worth a sentence: time in the queue, time that no roof explains, memory that is
full, prompts that begin alike; and below which accepted drafts are few."""


def _first_token(prefill: Phase, facts: RunFacts) -> list[Lever]:
    found: list[Lever] = []
    if facts.ttft_ms and facts.queue_ms is not None and facts.queue_ms / facts.ttft_ms > WAITED:
        found.append(Lever(TTFT, "queue", (("share", facts.queue_ms / facts.ttft_ms),)))
    if facts.common_tokens > facts.prompt_tokens * ALIKE:
        found.append(Lever(TTFT, "share", (("count", facts.common_tokens),)))
    if prefill.forwards:
        name = "prompt_memory" if prefill.roof == MEMORY else "prompt"
        found.append(Lever(TTFT, name, (("count", prefill.tokens), ("ms", prefill.ms / max(1, prefill.tokens)))))
    if prefill.forwards > 1 and prefill.tokens / prefill.forwards < 64 and prefill.reached is not None:
        found.append(Lever(TTFT, "pieces", (("count", prefill.forwards),)))
    return found


def _later_tokens(decode: Phase, other_ms: float, mixed: int, facts: RunFacts) -> list[Lever]:
    found: list[Lever] = []
    if facts.preemptions:
        found.append(Lever(TPOT, "preempted", (("count", facts.preemptions),)))
    elif facts.kv_peak_share > CROWDED:
        found.append(Lever(TPOT, "crowded", (("share", facts.kv_peak_share),)))
    if mixed:
        found.append(Lever(TPOT, "mixed", (("count", mixed),)))
    if decode.forwards:
        width = decode.sequences / decode.forwards
        if decode.reached is not None and decode.reached < 1 - HIDDEN:
            found.append(Lever(TPOT, "overhead", (("share", 1 - decode.reached), ("width", width))))
        if decode.kv_bytes > decode.weight_bytes:
            found.append(Lever(TPOT, "kv", (("share", decode.kv_bytes / decode.num_bytes),)))
        elif decode.roof != COMPUTE:
            found.append(Lever(TPOT, "weights", (("share", decode.weight_bytes / decode.num_bytes), ("width", width))))
        else:
            found.append(Lever(TPOT, "wide", (("width", width),)))
        if other_ms > (decode.ms + other_ms) * WAITED:
            found.append(Lever(TPOT, "drawing", (("share", other_ms / (decode.ms + other_ms)),)))
    if facts.draft_proposed:
        share = facts.draft_accepted / facts.draft_proposed
        found.append(Lever(TPOT, "drafts_few" if share < LOW else "drafts", (("share", share),)))
    elif decode.forwards and decode.roof != COMPUTE:
        found.append(Lever(TPOT, "drafts_none"))
    return found


@dataclass(frozen=True)
class Change:
    """A figure of this run beside that of the run before; `name` is a key of the catalogue."""

    name: str
    before: float
    now: float


def compare(now: Explanation, before: Explanation) -> tuple[Change, ...]:
    """What the field's checklist asks first: which of TTFT and TPOT moved, and did prompts or the batch change."""
    pairs = (
        ("ttft", now.facts.ttft_ms, before.facts.ttft_ms), ("tpot", now.facts.tpot_ms, before.facts.tpot_ms),
        ("prompt_tokens", now.facts.prompt_tokens, before.facts.prompt_tokens),
        ("cached", now.facts.cached_tokens, before.facts.cached_tokens),
        ("batch", _width(now), _width(before)), ("kv_peak", now.facts.kv_peak_share, before.facts.kv_peak_share),
    )
    changes = [Change(name, was, is_) for name, is_, was in pairs if is_ is not None and was is not None and is_ != was]
    if now.facts.model != before.facts.model:
        changes.append(Change("model", 0, 1))
    return tuple(changes)


def _width(explanation: Explanation) -> float:
    """Sequences in a decode step on average."""
    return explanation.decode.sequences / explanation.decode.forwards if explanation.decode.forwards else 0.0


def common_tokens(stories: Sequence[tuple[Sequence[int], int, str | None]], block_size: int) -> int:
    """Prompt tokens that were stored although another story begins with the same ones, counted in whole blocks.

    A story is its token ids, how many of its first ones it took from memory that was there already, and its adapter:
    under another one the same tokens have other keys, so nothing could have been shared.
    """
    known: dict[tuple[int | str | None, tuple[int, ...]], int] = {}
    wasted = 0
    for tokens, num_cached, adapter in stories:
        at: int | str | None = adapter
        for start in range(0, len(tokens) - block_size + 1, block_size):
            key = (at, tuple(tokens[start:start + block_size]))
            if key in known and start >= num_cached:
                wasted += block_size
            at = known.setdefault(key, len(known) + 1)
    return wasted
