"""Every backend against the dense oracle, and the oracle against the rule applied to one packed row."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from kev_engine.attention.base import AttentionBackend, LayerFacts, backends
from kev_engine.attention.dense import DenseBackend
from kev_engine.attention.flash import FlashBackend
from kev_engine.attention.segment import SegmentBackend, causal_bias
from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.storage import KVShape, KVStorage
from kev_engine.isolation import mask
from kev_engine.isolation.faults import FAULTS, Fault
from kev_engine.isolation.layout import pack
from kev_engine.native.kernels import Kernels
from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.sequence import Sequence
from tests.attention import flash_standin

HEAD_DIM, KV_HEADS = 8, 2
TOLERANCE = 2e-6
"""fp32 sums of at most 200 products in another order."""


class Story:
    """Random queries, keys and values of whole stories, executed step by step through a backend."""

    def __init__(
        self, seed: int, groups: int, token_budget: int, block_size: int = 4, dtype: torch.dtype = torch.float32
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.groups = groups
        self.block_size = block_size
        self.shape = KVShape(1, KV_HEADS, HEAD_DIM, dtype)
        self.token_budget = token_budget
        self.sequences: list[Sequence] = []
        self.token = cache(self.draw_token)

    def add(self, length: int, parent: Sequence | None = None, new_tokens: int = 3) -> Sequence:
        above = [] if parent is None else parent.tokens
        sequence = Sequence([*above, *range(length)], new_tokens, parent=parent, id=len(self.sequences))
        self.sequences.append(sequence)
        return sequence

    def layer_inputs(self, scheduled: Scheduled) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value of each new token: functions of (sequence, position) alone, so every run agrees."""
        rows = []
        for chunk in scheduled.plan.chunks:
            rows += [self.token(chunk.sequence, position) for position in range(chunk.start, chunk.num_keys)]
        stacked = torch.stack(rows).to(self.shape.dtype)  # [T, Hq + 2 Hkv, D]
        split = KV_HEADS * self.groups
        return stacked[:, :split].transpose(0, 1)[None], stacked[:, split : split + KV_HEADS], stacked[:, -KV_HEADS:]

    def draw_token(self, sequence_id: int, position: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(10_000 * self.owner(sequence_id, position) + position)
        return torch.randn(KV_HEADS * (self.groups + 2), HEAD_DIM, generator=generator)

    def owner(self, sequence_id: int, position: int) -> int:
        """The sequence whose own token stands at this position of the story."""
        sequence = self.sequences[sequence_id]
        while sequence.parent is not None and position < sequence.num_inherited:
            sequence = sequence.parent
        return sequence.id

    def run(self, backend, window: int | None, fragment: bool = False) -> dict[tuple[int, int], torch.Tensor]:
        """Attention output of every (sequence, position), through the real scheduler."""
        pool = BlockPool(200, self.block_size)
        if fragment:  # leave only scattered blocks free, so that tables are not contiguous
            held = pool.allocate(pool.num_usable)
            pool.release(self.rng.permutation(held)[:120].tolist())
        storage = KVStorage(self.shape, pool.num_blocks, self.block_size, torch.device("cpu"))
        storage.fill(range(1, pool.num_blocks), float("nan"))
        scheduler = Scheduler(pool, self.token_budget)
        sequences = [self.fresh(sequence) for sequence in self.sequences]
        for fresh, sequence in zip(sequences, self.sequences, strict=True):
            if sequence.parent is not None:
                fresh.parent = sequences[sequence.parent.id]
                fresh.parent.num_children_waiting += 1
                fresh.num_inherited = fresh.num_computed = fresh.parent.num_prompt
        scheduler.submit(sequences)
        outputs = {}
        while (scheduled := scheduler.next_step()) is not None:
            for copy in scheduled.plan.copies:
                storage.copy_block(copy.source, copy.target, copy.num_tokens)
            query, key, value = self.layer_inputs(scheduled)
            storage.write(0, torch.from_numpy(scheduled.plan.slot_mapping), key, value)
            state = backend.prepare(scheduled.plan, storage, frozenset({window}))
            out = backend.attend(LayerFacts(0, HEAD_DIM**-0.5, window), query, storage, state)
            row = 0
            for chunk in scheduled.plan.chunks:
                for position in range(chunk.start, chunk.num_keys):
                    outputs[chunk.sequence, position] = out[0, row]
                    row += 1
            scheduler.commit(scheduled)
            for sequence in scheduled.sampled:
                sequence.tokens.append(0)
                if sequence.num_output >= sequence.max_new_tokens:
                    scheduler.finish(sequence)
        assert scheduler.is_idle
        return outputs

    @staticmethod
    def fresh(sequence: Sequence) -> Sequence:
        return Sequence(list(sequence.tokens), sequence.max_new_tokens, id=sequence.id)


def random_story(
    seed: int, groups: int, token_budget: int, block_size: int = 4, dtype: torch.dtype = torch.float32
) -> Story:
    """A tree of stories of up to 20 tokens, longer where blocks are large, so that many of them span blocks."""
    scale = max(1, block_size // 8)
    story = Story(seed, groups, token_budget * scale, block_size, dtype)

    def length(below: int) -> int:
        return int(story.rng.integers(1, below * scale))

    for _ in range(story.rng.integers(1, 4)):
        story.add(length(20), new_tokens=int(story.rng.integers(1, 5)))
    context = story.add(length(15), new_tokens=0)
    inner = story.add(length(6), context, new_tokens=0)
    for parent in (inner, context, inner):
        story.add(length(8), parent, new_tokens=int(story.rng.integers(1, 5)))
    return story


@dataclass(frozen=True)
class Case:
    """A backend as it can run here: on what storage, and how far from the oracle on the same storage."""

    backend: AttentionBackend
    block_size: int
    dtype: torch.dtype
    tolerance: float
    seeds: int = 4


CASES = {
    "segment": Case(SegmentBackend(), 4, torch.float32, TOLERANCE),
    # One unit in the last place of a number up to 4, measured: both sides sum in fp32 and round at the end.
    "flash-float16": Case(FlashBackend(flash_standin, "cpu"), 256, torch.float16, 2**-9 * 1.01, seeds=1),
    "flash-bfloat16": Case(FlashBackend(flash_standin, "cpu"), 256, torch.bfloat16, 2**-6 * 1.01, seeds=1),
}


def test_every_backend_has_a_case():
    assert {case.backend.name for case in CASES.values()} == set(backends()) - {"dense"}


def with_kernels(name: str, kernels: Kernels) -> Case:
    return replace(CASES["segment"], backend=SegmentBackend(kernels)) if name == "segment-native" else CASES[name]


@pytest.mark.parametrize("name", [*CASES, "segment-native"])
@pytest.mark.parametrize("fragment", [False, True], ids=["contiguous", "scattered"])
@pytest.mark.parametrize("window", [None, 5, 300])
@pytest.mark.parametrize(("groups", "token_budget"), [(1, 4096), (3, 7), (2, 16)])
def test_backend_equals_the_oracle(kernels, name, fragment, window, groups, token_budget):
    case = with_kernels(name, kernels)
    for seed in range(case.seeds):
        story = random_story(seed, groups, token_budget, case.block_size, case.dtype)
        expected = story.run(DenseBackend(), window)
        found = story.run(case.backend, window, fragment)
        assert found.keys() == expected.keys()
        for cell, right in expected.items():
            assert (found[cell] - right).abs().max() < case.tolerance, (seed, cell)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("token_budget", [4096, 7])
def test_the_oracle_equals_the_rule_on_one_row(window, token_budget):
    """The whole stories as one packed row under `mask.dense`, softmax written out: no plan, no cache, no blocks."""
    for seed in range(4):
        story = random_story(seed, 2, token_budget)
        found = story.run(DenseBackend(), window)
        grown = [len(sequence.tokens) + max(sequence.max_new_tokens - 1, 0) for sequence in story.sequences]
        parents = [None if sequence.parent is None else sequence.parent.id for sequence in story.sequences]
        inherited = [sequence.num_inherited for sequence in story.sequences]
        layout = pack([length - above for length, above in zip(grown, inherited, strict=True)], parents)
        rows = torch.stack([
            torch.randn(
                KV_HEADS * 4, HEAD_DIM, generator=torch.Generator().manual_seed(10_000 * int(segment) + int(position))
            )
            for segment, position in zip(layout.segment_ids, layout.position_ids, strict=True)
        ]).double()
        allowed = torch.from_numpy(mask.dense(layout, window))
        for head in range(KV_HEADS * 2):
            scores = rows[:, head] @ rows[:, 4 + head // 2].T * HEAD_DIM**-0.5
            right = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=1) @ rows[:, 6 + head // 2]
            for row in range(layout.num_tokens):
                cell = int(layout.segment_ids[row]), int(layout.position_ids[row])
                assert (found[cell][head].double() - right[row]).abs().max() < TOLERANCE, (seed, cell)


@pytest.mark.parametrize("name", sorted(name for name, fault in FAULTS.items() if fault.cells or fault.adds_mask))
def test_a_broken_oracle_is_noticed(name):
    """The mutation of the two tests above: with the mask broken, outputs differ by far more than the tolerance."""
    story = random_story(0, 2, 4096)
    right = story.run(DenseBackend(), None)
    broken = story.run(DenseBackend(FAULTS[name]), None)
    worst = max((broken[cell].nan_to_num(nan=9.0) - right[cell]).abs().max() for cell in right)
    assert worst > 0.01


def test_a_fault_that_breaks_nothing_is_the_oracle():
    story = random_story(0, 2, 4096)
    right = story.run(DenseBackend(), None)
    same = story.run(DenseBackend(Fault("none", "nothing", cells=lambda plan, allowed: allowed)), None)
    assert all(torch.equal(same[cell], right[cell]) for cell in right)


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(5, 5, None), (3, 9, None), (1, 6, None), (4, 9, 3), (7, 7, 2)]
)
def test_the_causal_bias_is_the_rule(queries, keys, window):
    """The view of one vector, queries reversed, is the dense mask of the last rows of one segment."""
    bias = causal_bias(queries, keys, window, torch.float32, torch.device("cpu"))
    right = mask.dense(pack([keys]), window)[keys - queries :]
    assert torch.equal(bias.flip(0) == 0, torch.from_numpy(right))
    assert bias.untyped_storage().nbytes() == 4 * (queries + keys - 1), "memory grows with Q + K"
