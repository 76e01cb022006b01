"""The draw: by each row's own parameters and numbers, right in distribution, and alone with its errors."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import pytest
import torch

from kev_engine.sampling.sampler import (
    NO_TOKEN,
    NOT_FINITE,
    NOTHING_LEFT,
    RowState,
    _scores,
    sample,
    uniform,
)
from kev_engine.schema import (
    DEFAULT_ORDER,
    MIN_P,
    PENALTIES,
    PENALTIES_LAST,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    SamplingParams,
)

SOAK = os.environ.get("KEV_SOAK") == "1"


def row(seed: int = 0, index: int = 0, **params: Any) -> RowState:
    params.setdefault("temperature", 1.0)
    return RowState(SamplingParams(**params), seed, output_token_ids=[0] * index)


def random_logits(num_rows: int, vocab_size: int = 300) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(num_rows)) * 3


def mixed_rows(count: int) -> list[RowState]:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 1.5, "top_k": 5},
        {"temperature": 0.0, "repetition_penalty": 1.5},
        {"temperature": 1.0, "top_p": 0.4, "order": PENALTIES_LAST, "presence_penalty": 1.0},
        {"temperature": 3.0, "min_p": 0.1, "frequency_penalty": 0.3},
    ]
    return [
        RowState(SamplingParams(**kinds[index % len(kinds)]), seed=index, prompt_token_ids=[index, index + 1],
                 output_token_ids=[index + 2] * (index % 3), has_logprobs=index % 4 == 1)
        for index in range(count)
    ]


def frequencies(logits: torch.Tensor, draws: int, **params: Any) -> list[int]:
    rows = [row(seed, **params) for seed in range(draws)]
    tokens = sample(logits.expand(draws, -1), rows).token_ids
    return [tokens.count(token_id) for token_id in range(logits.shape[-1])]


def chi_square(counts: list[int], probabilities: list[float]) -> float:
    draws = sum(counts)
    return sum((count - draws * p) ** 2 / (draws * p) for count, p in zip(counts, probabilities, strict=True) if p)


def test_greedy_is_the_argmax_of_the_logits() -> None:
    logits = random_logits(64)
    assert list(sample(logits, [row(temperature=0.0)] * 64).token_ids) == logits.argmax(-1).tolist()
    assert sample(torch.tensor([[1.0, 2.0, 2.0]]), [row(temperature=0.0)]).token_ids == (1,)


def test_greedy_takes_the_highest_after_the_penalties() -> None:
    state = RowState(SamplingParams(temperature=0.0, repetition_penalty=3.0), 0, [0])
    assert sample(torch.tensor([[2.0, 1.0]]), [state]).token_ids == (1,)
    last = replace(state, params=replace(state.params, top_k=1, order=PENALTIES_LAST))
    assert sample(torch.tensor([[2.0, 1.0]]), [last]).token_ids == (0,), "the cut left no other token to prefer"


def test_the_logits_are_not_changed() -> None:
    logits = random_logits(12)
    before = logits.clone()
    allowed = torch.zeros(300, dtype=torch.bool)
    allowed[:9] = True
    sample(logits, [replace(state, allowed=allowed) for state in mixed_rows(12)])
    assert torch.equal(logits, before)


def test_br_137_each_row_keeps_its_own_settings() -> None:
    logits = torch.tensor([[1.0, 0.9, 0.8, 0.7]] * 2)
    pairs = [sample(logits, [row(seed, temperature=0.0), row(seed)]).token_ids for seed in range(40)]
    assert {first for first, _ in pairs} == {0}
    assert {second for _, second in pairs} == {0, 1, 2, 3}
    swapped = [sample(logits, [row(seed), row(seed, temperature=0.0)]).token_ids for seed in range(40)]
    assert swapped == [pair[::-1] for pair in pairs]


def test_br_135_the_order_decides_what_can_be_drawn() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    warm_first = frequencies(logits, 200, temperature=2.0, top_p=0.6)
    cut_first = frequencies(logits, 200, temperature=2.0, top_p=0.6,
                            order=("penalties", "top_k", "top_p", "temperature", "min_p"))
    assert [count > 0 for count in warm_first] == [True, True, False]
    assert cut_first == [200, 0, 0]


def test_penalties_before_or_after_the_cut() -> None:
    """Token 0 is repeated: penalised first it falls out of the top one, penalised last it is all that is left."""
    logits = torch.tensor([[2.0, 1.9]])
    state = RowState(SamplingParams(temperature=1.0, top_k=1, presence_penalty=1.0), 0, output_token_ids=[0])
    assert sample(logits, [state]).token_ids == (1,)
    assert sample(logits, [replace(state, params=replace(state.params, order=PENALTIES_LAST))]).token_ids == (0,)


GOLDEN: list[tuple[tuple[str, str], list[float], dict[str, Any], list[float], list[float]]] = [
    # Probabilities before, and what is left of them in the default order and with these two neighbours swapped.
    ((PENALTIES, TEMPERATURE), [0.5, 0.3, 0.2], {"presence_penalty": 1.0, "temperature": 2.0},
     [0.30122, 0.384686, 0.314095], [0.207264, 0.436409, 0.356327]),
    ((TOP_K, TOP_P), [0.5, 0.3, 0.2], {"top_k": 2, "top_p": 0.6}, [1, 0, 0], [0.625, 0.375, 0]),
    ((TOP_P, MIN_P), [0.5, 0.3, 0.15, 0.05], {"top_p": 0.82, "min_p": 0.25},
     [0.526316, 0.315789, 0.157895, 0], [0.625, 0.375, 0, 0]),
]


@pytest.mark.parametrize(("pair", "before", "params", "default", "swapped"), GOLDEN)
def test_swapping_two_steps_gives_another_distribution(
    pair: tuple[str, str], before: list[float], params: dict[str, Any], default: list[float], swapped: list[float]
) -> None:
    """By hand, with token 0 in the output. Top-k next to the temperature is left out: it only counts."""
    at = DEFAULT_ORDER.index(pair[0])
    order = (*DEFAULT_ORDER[:at], *pair[::-1], *DEFAULT_ORDER[at + 2 :])
    for steps, expected in ((DEFAULT_ORDER, default), (order, swapped)):
        state = RowState(SamplingParams(**{"temperature": 1.0, **params}, order=steps), 0, output_token_ids=[0])
        assert _scores(torch.tensor([before]).log(), [state], steps).softmax(-1)[0].tolist() == pytest.approx(
            expected, abs=1e-5)
        assert naive(before, state, steps) == pytest.approx(expected, abs=1e-5)


def naive(before: list[float], row: RowState, order: tuple[str, ...]) -> list[float]:
    """The slow definition, one token at a time."""
    params = row.params
    scores = [math.log(p) for p in before]

    def probabilities() -> list[float]:
        weights = [math.exp(score) for score in scores]
        return [weight / sum(weights) for weight in weights]

    for step in order:
        likeliest = sorted(range(len(scores)), key=lambda token: -scores[token])
        if step == PENALTIES:
            for token in {*row.prompt_token_ids, *row.output_token_ids}:
                by = params.repetition_penalty
                scores[token] = scores[token] / by if scores[token] > 0 else scores[token] * by
            for token in set(row.output_token_ids):
                count = list(row.output_token_ids).count(token)
                scores[token] -= params.frequency_penalty * count + params.presence_penalty
        elif step == TEMPERATURE:
            scores = [score / params.temperature for score in scores]
        elif step == TOP_K and params.top_k:
            kept = set(likeliest[: params.top_k])
            scores = [score if token in kept else -math.inf for token, score in enumerate(scores)]
        elif step == TOP_P:
            now, mass = probabilities(), 0.0
            for token in likeliest:
                if mass >= params.top_p:
                    scores[token] = -math.inf
                mass += now[token]
        elif step == MIN_P:
            now = probabilities()
            scores = [
                score if p >= params.min_p * max(now) else -math.inf for score, p in zip(scores, now, strict=True)
            ]
    return probabilities()


def test_every_order_is_the_slow_definition() -> None:
    """All 120, each on a row of its own in one call, beside rows of the other orders."""
    orders = list(permutations(DEFAULT_ORDER))
    generator = torch.Generator().manual_seed(9)
    before = torch.randn(len(orders), 12, generator=generator).softmax(-1)
    rows = [
        RowState(SamplingParams(
            temperature=0.5 + number % 3, top_k=3 + number % 4, top_p=0.5 + number % 5 / 10, min_p=number % 3 / 20,
            repetition_penalty=1 + number % 2 / 3, presence_penalty=number % 2, frequency_penalty=number % 3 / 5,
            order=order,
        ), number, [1, 2, number % 12], [3, 3, number % 7])
        for number, order in enumerate(orders)
    ]
    expected = [naive(line, row, row.params.order) for line, row in zip(before.tolist(), rows, strict=True)]
    for order, row, line, right in zip(orders, rows, before, expected, strict=True):
        assert _scores(line.log()[None].clone(), [row], order).softmax(-1)[0].tolist() == pytest.approx(right, abs=1e-5)
    assert len({tuple(round(p, 4) for p in line) for line in expected}) > 20
    drawn = sample(before.log(), rows).token_ids
    assert all(right[token] > 0 for right, token in zip(expected, drawn, strict=True))


def test_a_permutation_of_the_rows_permutes_the_results() -> None:
    logits, rows = random_logits(24), mixed_rows(24)
    together = sample(logits, rows)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(5)).tolist()
    moved = sample(logits[order], [rows[index] for index in order])
    for name in ("token_ids", "errors", "logprobs", "alternatives"):
        assert list(getattr(moved, name)) == [getattr(together, name)[index] for index in order]


def test_a_row_alone_gives_what_it_gives_among_others() -> None:
    logits, rows = random_logits(24), mixed_rows(24)
    together = sample(logits, rows).token_ids
    assert tuple(sample(logits[index : index + 1], [rows[index]]).token_ids[0] for index in range(24)) == together


def test_a_draw_is_a_function_of_seed_sample_and_index() -> None:
    logits = torch.zeros(1, 1000)
    again = [sample(logits, [row(7, index)]).token_ids[0] for index in range(50)]
    assert again == [sample(logits, [row(7, index)]).token_ids[0] for index in range(50)]
    assert len(set(again)) > 40
    assert again != [sample(logits, [row(8, index)]).token_ids[0] for index in range(50)]
    assert again != [sample(logits, [replace(row(7, index), sample=1)]).token_ids[0] for index in range(50)]


def test_the_numbers_are_the_same_on_every_machine() -> None:
    assert [uniform(0, 0, 0), uniform(1, 2, 3), uniform(2**63 - 1, 0, 10**6)] == [
        0.156742553465558, 0.7069603535111167, 0.8477669581595678,
    ]


@pytest.mark.parametrize(("params", "expected"), [
    ({}, [0.4, 0.3, 0.2, 0.1, 0.0]),
    ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0]),
    ({"top_p": 0.75}, [4 / 9, 3 / 9, 2 / 9, 0, 0]),
    ({"min_p": 0.5}, [4 / 9, 3 / 9, 2 / 9, 0, 0]),
    ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30, 0]),
])
def test_draws_follow_the_distribution(params: dict[str, Any], expected: list[float]) -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1, 0.0]]).log()
    counts = frequencies(logits, 200_000 if SOAK else 20_000, **params)
    assert [count for count, p in zip(counts, expected, strict=True) if p == 0] == [0] * expected.count(0)
    assert chi_square(counts, expected) < 20.0  # 4 degrees of freedom at most: p = 0.0005


def test_draws_of_one_answer_follow_the_distribution() -> None:
    """Along the index, as one answer draws them, and together with the index before, so successive draws are free."""
    rows = [row(3, index) for index in range(4000)]
    tokens = sample(torch.zeros(4000, 4), rows).token_ids
    assert chi_square([tokens.count(token_id) for token_id in range(4)], [0.25] * 4) < 17.7
    pairs = [4 * left + right for left, right in pairwise(tokens)]
    assert chi_square([pairs.count(pair) for pair in range(16)], [1 / 16] * 16) < 40.0


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.full((2000, 6), -torch.inf)
    logits[:, 2] = 0.0
    assert set(sample(logits, [row(seed) for seed in range(2000)]).token_ids) == {2}


@pytest.mark.parametrize("vocab_size", [255, 256, 257, 1000])
def test_every_token_of_a_large_vocabulary_is_drawn_where_its_number_falls(vocab_size: int) -> None:
    """Against one running sum: all tokens in turn have all the mass but a thousandth."""
    noise = torch.rand(vocab_size, vocab_size, generator=torch.Generator().manual_seed(1))
    weights = noise / noise.sum(-1, keepdim=True) / 1000 + torch.eye(vocab_size)
    rows = [row(seed) for seed in range(vocab_size)]
    tokens = sample(weights.log(), rows).token_ids
    numbers = torch.tensor([[uniform(seed, 0, 0)] for seed in range(vocab_size)], dtype=torch.float64)
    sums = weights.double().cumsum(-1)
    expected = torch.searchsorted(sums, numbers * sums[:, -1:], right=True)[:, 0].tolist()
    assert sum(left != right for left, right in zip(tokens, expected, strict=True)) <= 1
    assert sum(token == index for index, token in enumerate(tokens)) >= 0.99 * vocab_size


@pytest.mark.parametrize("bad", [[math.nan, 1.0, 2.0], [math.inf, 1.0, 2.0], [-math.inf] * 3, [1.0, 2.0, math.nan]])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9}])
def test_a_broken_row_is_an_error_of_that_row_only(bad: list[float], params: dict[str, Any]) -> None:
    good = [0.0, 5.0, -math.inf]
    logits = torch.tensor([good, bad, good])
    rows = [replace(row(**params), has_logprobs=True)] * 3
    sampled = sample(logits, rows)
    alone = sample(torch.tensor([good]), rows[:1])
    assert sampled.errors == (None, NOT_FINITE, None)
    assert sampled.token_ids == (alone.token_ids[0], NO_TOKEN, alone.token_ids[0])
    assert sampled.logprobs == (alone.logprobs[0], None, alone.logprobs[0])
    assert sampled.alternatives[1] == ()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_allowed_tokens_are_drawn(temperature: float) -> None:
    logits = torch.tensor([[9.0, 1.0, 1.1, 0.0]] * 3)
    allowed = torch.tensor([False, True, True, False])
    state = row(temperature=temperature)
    for seed in range(20):
        masks = (allowed, torch.zeros_like(allowed), None)
        rows = [replace(state, seed=seed, allowed=mask) for mask in masks]
        sampled = sample(logits, rows)
        assert sampled.token_ids[0] in ((2,) if temperature == 0 else (1, 2))
        assert sampled.errors == (None, NOTHING_LEFT, None)
        assert sampled.token_ids[2] == 0


def test_rows_where_nothing_is_left_leave_the_others_alone() -> None:
    allowed = torch.zeros(1000, dtype=torch.bool)
    logits = random_logits(8, 1000)
    rows = [replace(row(seed), allowed=allowed if seed % 2 else None) for seed in range(8)]
    sampled = sample(logits, rows)
    assert sampled.errors == (None, NOTHING_LEFT) * 4
    assert sampled.token_ids[::2] == sample(logits, [row(seed) for seed in range(8)]).token_ids[::2]


def test_top_k_counts_allowed_tokens_only() -> None:
    allowed = torch.tensor([False, True, True, True])
    rows = [replace(row(seed, top_k=2), allowed=allowed) for seed in range(100)]
    assert set(sample(torch.tensor([[9.0, 1.0, 0.9, 0.8]] * 100), rows).token_ids) == {1, 2}


def test_logprobs_are_the_models_own() -> None:
    """Of the chosen token and the five likeliest, whatever temperature, cuts and penalties did; only where asked."""
    logits = random_logits(3, 50)
    asked = RowState(SamplingParams(temperature=2.0, top_k=3, presence_penalty=1), 1, (), [4], has_logprobs=True)
    sampled = sample(logits, [asked, row(), replace(asked, params=SamplingParams(temperature=0.0))])
    expected = logits.log_softmax(-1)
    for index in (0, 2):
        chosen = sampled.logprobs[index]
        assert chosen is not None
        assert chosen.token_id == sampled.token_ids[index]
        assert chosen.logprob == pytest.approx(float(expected[index, chosen.token_id]), abs=1e-6)
        values, ids = expected[index].topk(5)
        assert [item.token_id for item in sampled.alternatives[index]] == ids.tolist()
        assert [item.logprob for item in sampled.alternatives[index]] == pytest.approx(values.tolist(), abs=1e-6)
    assert sampled.logprobs[1] is None
    assert sampled.alternatives[1] == ()


def test_half_precision_logits_are_drawn_in_single() -> None:
    logits = torch.tensor([[0.0, -0.001]]).to(torch.bfloat16).expand(4000, -1)
    tokens = sample(logits, [row(seed) for seed in range(4000)]).token_ids
    assert 0.45 < tokens.count(0) / 4000 < 0.55


def test_a_row_without_a_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature"):
        RowState(SamplingParams(), 0)
