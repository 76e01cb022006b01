"""The steps between logits and a draw: penalties, temperature, top-k, top-p, min-p.

Each takes scores `[R, V]` and the parameters of each row, changes the rows that ask for it and leaves the others as
they are, bit for bit. Tokens that are cut have the score −inf. The kept sets are those of the warpers in transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kev_engine.schema import MIN_P, PENALTIES, TEMPERATURE, TOP_K, TOP_P, SamplingParams

TOP_P_WINDOW = 512
"""Top-p looks at this many of the likeliest tokens first, and sorts the whole vocabulary only where they fall short."""
SMALLEST_DIVISOR = 1e-37
"""Lower temperatures count as this one: it is already greedy to the last bit of a float32."""
LARGEST_SCORE = 1e37
"""Rows that a division would lift above it are shifted down first, so that their highest score becomes 0."""


TokenIds = Sequence[int] | npt.NDArray[np.int64]


class Row(Protocol):
    """What the steps know about a row."""

    @property
    def params(self) -> SamplingParams: ...
    @property
    def prompt_token_ids(self) -> TokenIds: ...
    @property
    def output_token_ids(self) -> TokenIds: ...


def penalise(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Repetition (tokens of prompt and output: positive scores divided, negative multiplied), then frequency (times
    the count in the output) and presence (once for tokens of the output), both subtracted."""
    active = [index for index, row in enumerate(rows) if has_penalties(row.params)]

    def change(part: Tensor) -> Tensor:
        params = [rows[index].params for index in active]
        outputs = [rows[index].output_token_ids for index in active]
        prompts = [rows[index].prompt_token_ids for index in active]
        vocab_size, flat = part.shape[-1], part.flatten()
        # A cell that is named twice is read before it is written, so it still changes once.
        seen = torch.cat([_cells(prompts, part), _cells(outputs, part)])
        scores = flat[seen]
        repetition = _column(part, [row.repetition_penalty for row in params])[seen // vocab_size, 0]
        flat[seen] = torch.where(scores > 0, scores / repetition, scores * repetition)
        used, counts = _cells(outputs, part).unique(return_counts=True)  # type: ignore[no-untyped-call]
        frequency = _column(part, [row.frequency_penalty for row in params])[used // vocab_size, 0]
        presence = _column(part, [row.presence_penalty for row in params])[used // vocab_size, 0]
        flat[used] -= frequency * counts + presence
        return flat.view_as(part)

    return _change_rows(scores, active, change)


def scale(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Scores divided by the temperature; rows at temperature 0 stay as they are."""
    active = [index for index, row in enumerate(rows) if row.params.temperature not in (0, 1)]

    def change(part: Tensor) -> Tensor:
        divisors = _column(part, [max(rows[index].params.temperature or 1.0, SMALLEST_DIVISOR) for index in active])
        peaks = part.amax(dim=-1, keepdim=True)
        overflows = peaks.abs() / divisors > LARGEST_SCORE
        if bool(overflows.any()):
            part = torch.where(overflows, part - peaks, part)
        return part / divisors

    return _change_rows(scores, active, change)


def cut_top_k(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Only the k highest scores (and those equal to the k-th) are kept."""
    active = [index for index, row in enumerate(rows) if 0 < row.params.top_k < scores.shape[-1]]

    def change(part: Tensor) -> Tensor:
        ks = [rows[index].params.top_k for index in active]
        highest = part.topk(max(ks)).values
        kth = highest.gather(1, torch.tensor(ks, device=part.device)[:, None] - 1)  # [A, 1]
        return part.masked_fill(part < kth, -torch.inf)

    return _change_rows(scores, active, change)


def cut_top_p(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Only the likeliest tokens are kept whose forerunners together have less than p; the first one always is."""
    active = [index for index, row in enumerate(rows) if row.params.top_p < 1]

    def change(part: Tensor) -> Tensor:
        limits = _column(part, [rows[index].params.top_p for index in active]).double()
        total = part.logsumexp(dim=-1, keepdim=True)
        kept, mass = _nucleus(part, total, limits, min(TOP_P_WINDOW, part.shape[-1]))
        short = (mass < limits[:, 0]).nonzero()[:, 0] if part.shape[-1] > TOP_P_WINDOW else None
        if short is not None and len(short):
            kept[short] = _nucleus(part[short], total[short], limits[short], part.shape[-1])[0]
        return part.masked_fill(~kept, -torch.inf)

    return _change_rows(scores, active, change)


def cut_min_p(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Only tokens are kept that have at least min_p times the probability of the likeliest."""
    active = [index for index, row in enumerate(rows) if row.params.min_p > 0]

    def change(part: Tensor) -> Tensor:
        floor = part.amax(dim=-1, keepdim=True) + _column(part, [rows[index].params.min_p for index in active]).log()
        return part.masked_fill(part < floor, -torch.inf)

    return _change_rows(scores, active, change)


STEPS: Mapping[str, Callable[[Tensor, Sequence[Row]], Tensor]] = {
    PENALTIES: penalise, TEMPERATURE: scale, TOP_K: cut_top_k, TOP_P: cut_top_p, MIN_P: cut_min_p,
}


def has_penalties(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def _change_rows(scores: Tensor, active: list[int], change: Callable[[Tensor], Tensor]) -> Tensor:
    if not active:
        return scores
    if len(active) == len(scores):
        return change(scores)
    at = torch.tensor(active, device=scores.device)
    return scores.index_copy(0, at, change(scores[at]))


def _column(scores: Tensor, values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=scores.dtype, device=scores.device)[:, None]  # [A, 1]


def _cells(histories: Sequence[TokenIds], scores: Tensor) -> Tensor:
    """The cells of the flattened scores that the histories name, one for each token."""
    vocab_size = scores.shape[-1]
    cells = [np.asarray(history, dtype=np.int64) + row * vocab_size for row, history in enumerate(histories)]
    return torch.from_numpy(np.concatenate(cells)).to(scores.device)


def _nucleus(scores: Tensor, total: Tensor, limits: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Which tokens stay when only the `window` likeliest may, `[A, V]`, and the probability those have, `[A]`."""
    highest, at = scores.topk(window)
    probabilities = (highest - total).exp().double()
    mass = probabilities.cumsum(dim=-1)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(1, at, mass - probabilities < limits)
    return kept, mass[:, -1]
