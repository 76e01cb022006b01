"""An answer token by token: how likely each was, and what else might have stood there."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from app.render.mask import TokenTexts
from app.run_view import SampleView

if TYPE_CHECKING:
    from kev_engine.schema import TokenLogprob


def token_pieces(sample: SampleView, token_texts: TokenTexts) -> list[list[object]]:
    """The pieces of an answer as `[text, [[token, probability, alternatives], …]]`, `[[text, probability], …]` each.

    The alternatives come when the answer is finished; until then they would be sent over and over.
    """
    is_done = sample.answer is not None
    wanted = [*sample.token_ids, *(alternative.token_id for alternative in chain.from_iterable(sample.alternatives))]
    texts = dict(zip(wanted, token_texts(wanted), strict=True))
    found: list[list[object]] = []
    at = 0
    for piece in sample.pieces:
        tokens: list[list[object]] = []
        for index in range(at, min(at + piece.num_tokens, len(sample.scores))):
            others = [[texts[other.token_id], _share(other)] for other in sample.alternatives[index]] if is_done else []
            tokens.append([texts[sample.token_ids[index]], _share(sample.scores[index]), others])
        at += piece.num_tokens
        found.append([piece.text, tokens])
    return found


def _share(score: TokenLogprob) -> float:
    return round(math.exp(score.logprob), 4)
