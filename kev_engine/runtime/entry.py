"""The test that a model must pass to be served: two segments of four tokens, packed, may not know of each other.

Three tokens of each enter together, the fourth is decoded, so both kinds of steps are run.
"""

from __future__ import annotations

import numpy as np

from kev_engine.cache.storage import KVShape
from kev_engine.config import MIN_TOKEN_BUDGET
from kev_engine.errors import ModelUnsupported
from kev_engine.isolation.layout import pack
from kev_engine.models.load import ModelFacts
from kev_engine.runtime.audit import Auditor, Proof, Subject
from kev_engine.runtime.model_runner import ModelRunner
from kev_engine.runtime.sequence import Sequence

LENGTHS, NEW_TOKENS = (3, 3), 2


def require_isolation(runner: ModelRunner, shape: KVShape, block_size: int, facts: ModelFacts) -> None:
    """Run the audit on random tokens through the chosen backend: what no look at names and calls can promise.

    Raises ModelUnsupported with what was measured where a segment's logits depend on the other, or are no numbers.
    """
    tokens = np.random.default_rng(0).integers(0, facts.vocab_size, (len(LENGTHS), max(LENGTHS))).tolist()
    subjects = [
        Subject(f"segment {index}", Sequence(story[:length], NEW_TOKENS, id=index), frozenset())
        for index, (story, length) in enumerate(zip(tokens, LENGTHS, strict=True))
    ]
    auditor = Auditor(runner, shape, subjects, block_size, MIN_TOKEN_BUDGET, 1, facts.vocab_size)
    what = f"a model of type {facts.model_type!r} cannot be packed through backend {runner.backend.name!r}"
    if any(record.logits.isnan().any() for record in auditor.records):
        raise ModelUnsupported(
            f"{what}: its logits for eight tokens are no numbers in {str(shape.dtype).partition('.')[2]}; "
            "try --dtype float32, or another model."
        )
    for proof in auditor.prove(pack(LENGTHS), NEW_TOKENS, together=True).questions:
        if not proof.is_isolated:
            raise ModelUnsupported(f"{what}: of two segments run together, {_difference(proof)}; choose another model.")


def _difference(proof: Proof) -> str:
    moved = max(proof.neighbour_max_abs, proof.poison_max_abs)
    if moved:
        return f"one's logits moved by {moved:.2g} when the other's tokens or memory were changed"
    return f"one's logits are {proof.alone_max_abs:.2g} off those it has alone (bound {proof.alone_bound:.2g})"
