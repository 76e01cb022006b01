"""The steps against the warpers of transformers, and against faults that others had."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from kev_engine.sampling.steps import STEPS, TOP_P_WINDOW
from kev_engine.schema import DEFAULT_ORDER, SamplingParams


@dataclass
class Row:
    params: SamplingParams
    prompt_token_ids: list[int] = field(default_factory=list)
    output_token_ids: list[int] = field(default_factory=list)


def row(prompt: list[int] | None = None, output: list[int] | None = None, **params: Any) -> Row:
    return Row(SamplingParams(**params), prompt or [], output or [])


def apply(step: str, logits: torch.Tensor, *rows: Row) -> torch.Tensor:
    return STEPS[step](logits.clone(), rows)


def kept(scores: torch.Tensor) -> list[list[int]]:
    return [torch.isfinite(line).nonzero()[:, 0].tolist() for line in scores]


def random_logits(vocab_size: int, spread: float = 3.0, num_rows: int = 4) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * spread


@pytest.mark.parametrize("vocab_size", [5, 100, 4 * TOP_P_WINDOW])
@pytest.mark.parametrize("spread", [0.01, 3.0])
@pytest.mark.parametrize(("step", "params", "warper"), [
    ("temperature", {"temperature": 0.7}, TemperatureLogitsWarper(0.7)),
    ("temperature", {"temperature": 1.9}, TemperatureLogitsWarper(1.9)),
    ("top_k", {"top_k": 3}, TopKLogitsWarper(3)),
    ("top_k", {"top_k": 10_000}, TopKLogitsWarper(10_000)),
    ("top_p", {"top_p": 0.9}, TopPLogitsWarper(0.9)),
    ("top_p", {"top_p": 0.05}, TopPLogitsWarper(0.05)),
    ("top_p", {"top_p": 0.999}, TopPLogitsWarper(0.999)),
    ("min_p", {"min_p": 0.1}, MinPLogitsWarper(0.1)),
    ("min_p", {"min_p": 0.9}, MinPLogitsWarper(0.9)),
])
def test_steps_are_the_warpers_of_transformers(
    step: str, params: dict[str, Any], warper: Any, spread: float, vocab_size: int
) -> None:
    logits = random_logits(vocab_size, spread)
    ours = apply(step, logits, *[row(**params)] * len(logits))
    assert torch.equal(ours, warper(None, logits.clone()))


def test_repetition_is_that_of_transformers() -> None:
    logits = random_logits(50)
    history = torch.tensor([[1, 2, 2, 3], [4, 4, 4, 4], [0, 9, 8, 7], [49, 0, 1, 2]])
    rows = [row(line[:2], line[2:], repetition_penalty=1.3) for line in history.tolist()]
    assert torch.equal(apply("penalties", logits, *rows), RepetitionPenaltyLogitsProcessor(1.3)(history, logits))


def test_br_135_the_order_of_temperature_and_top_p() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    wanted = row(temperature=2.0, top_p=0.6)
    warm = apply("temperature", logits, wanted)
    assert warm.softmax(-1)[0].tolist() == pytest.approx([0.5065, 0.3072, 0.1863], abs=1e-4)
    assert kept(apply("top_p", warm, wanted)) == [[0, 1]]
    assert logits.softmax(-1)[0].tolist() == pytest.approx([0.6652, 0.2447, 0.09], abs=1e-4)
    assert kept(apply("temperature", apply("top_p", logits, wanted), wanted)) == [[0]]


def test_br_139_only_one_row_sets_top_k() -> None:
    logits = torch.tensor([[1.0, 0.5, 0.2, 0.1, 0.0]] * 2)
    assert kept(apply("top_k", logits, row(), row(top_k=2))) == [[0, 1, 2, 3, 4], [0, 1]]


def test_br_140_penalties_belong_to_their_row_in_either_order() -> None:
    logits = torch.tensor([[2.0, 1.0, -1.0]] * 2)
    rows = [row([0], [2], repetition_penalty=2.0), row([0], [2])]
    penalised = [[1.0, 1.0, -2.0], [2.0, 1.0, -1.0]]
    assert apply("penalties", logits, *rows).tolist() == penalised
    assert apply("penalties", logits, *reversed(rows)).tolist() == penalised[::-1]


def test_br_141_only_a_rows_own_history_is_penalised() -> None:
    """Histories of different lengths need no padding here, so token 0 stays untouched."""
    scores = apply("penalties", torch.full((2, 8), 3.0), row([7], repetition_penalty=1.5),
                   row([5, 6], [7], repetition_penalty=1.5))
    assert scores.tolist() == [[3.0] * 7 + [2.0], [3.0] * 5 + [2.0] * 3]


def test_presence_and_frequency_look_at_the_output_alone() -> None:
    logits = torch.zeros(3, 5)
    scores = apply("penalties", logits, row([0, 1], [2, 3, 3], presence_penalty=0.5),
                   row([0, 1], [2, 3, 3], frequency_penalty=0.25), row([0, 1], [], frequency_penalty=0.25))
    assert scores.tolist() == [[0, 0, -0.5, -0.5, 0], [0, 0, -0.25, -0.5, 0], [0.0] * 5]


def test_penalties_of_one_row_add_up() -> None:
    wanted = row([0], [1, 1], repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5)
    assert apply("penalties", torch.tensor([[4.0, 4.0, 4.0]]), wanted).tolist() == [[2.0, 0.0, 4.0]]


def test_rows_that_ask_for_nothing_stay_bit_for_bit() -> None:
    logits = random_logits(2000)
    busy = row([1, 2], [3], temperature=0.3, top_k=7, top_p=0.5, min_p=0.2, repetition_penalty=1.7, presence_penalty=1,
               frequency_penalty=1)
    for step in DEFAULT_ORDER:
        scores = apply(step, logits, row(), busy, row(temperature=0), busy)
        assert torch.equal(scores[0], logits[0])
        assert torch.equal(scores[2], logits[2])
        assert not torch.equal(scores[1], logits[1])


def test_a_rows_result_does_not_depend_on_its_neighbours() -> None:
    logits = random_logits(3000, num_rows=6)
    rows = [row([index], [index + 1], temperature=0.5 + index, top_k=5 * index, top_p=0.3 + index / 10,
                min_p=index / 50, repetition_penalty=1 + index / 10) for index in range(6)]
    for step in DEFAULT_ORDER:
        together = apply(step, logits, *rows)
        for index in range(6):
            assert torch.equal(apply(step, logits[index : index + 1], rows[index])[0], together[index])


def test_a_flat_row_needs_more_than_the_first_window() -> None:
    """Row 0 is flat, so half of all tokens are kept; row 1 is steep, so one is."""
    vocab_size = 4 * TOP_P_WINDOW
    logits = torch.stack([torch.linspace(0, 1e-3, vocab_size), torch.linspace(0, 1e5, vocab_size)])
    sets = kept(apply("top_p", logits, *[row(top_p=0.5)] * 2))
    assert len(sets[0]) == pytest.approx(vocab_size / 2, abs=2)
    assert sets[1] == [vocab_size - 1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, 1e-30, 1e-6])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e38])
def test_a_tiny_temperature_neither_overflows_nor_ties(temperature: float, size: float) -> None:
    logits = torch.tensor([[1.0, 2.0, -3.0, 1.999]]) * size
    scores = apply("temperature", logits, row(temperature=temperature))
    assert scores.argmax() == 1
    assert torch.isfinite(scores.amax())
    assert scores.softmax(-1)[0, 1] == pytest.approx(1.0, abs=1e-4 if size > 1e-3 else 1)
