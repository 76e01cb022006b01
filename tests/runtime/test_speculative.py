"""Drafts: guessed tokens run in the same forward, and what is drawn is what would have been drawn without them."""

from __future__ import annotations

import numpy as np
import pytest

from kev_engine.cache.blocks import BlockPool
from kev_engine.runtime.scheduler import Scheduler
from kev_engine.runtime.sequence import Sequence
from kev_engine.runtime.speculative import CREDIT, FIRST_PAUSE, ROW_COST, SIZES, Drafter


def step(scheduler: Scheduler):
    scheduled = scheduler.next_step()
    assert scheduled is not None
    scheduler.commit(scheduled)
    return scheduled


def started(lengths: list[int], max_new_tokens: int = 9, budget: int = 64, blocks: int = 40) -> tuple[Scheduler, list]:
    """Prefilled sequences that have drawn their first token."""
    scheduler = Scheduler(BlockPool(blocks, 4), budget)
    sequences = [Sequence(list(range(length)), max_new_tokens, id=index) for index, length in enumerate(lengths)]
    scheduler.submit(sequences)
    step(scheduler)
    for sequence in sequences:
        sequence.append(90)
    return scheduler, sequences


def test_a_draft_adds_rows_behind_the_last_token():
    scheduler, [plain, drafted] = started([3, 5])
    drafted.draft = [91, 92]
    scheduled = step(scheduler)
    plan = scheduled.plan
    assert [(chunk.start, chunk.num_new) for chunk in plan.chunks] == [(3, 1), (5, 3)]
    assert plan.input_ids.tolist() == [90, 90, 91, 92]
    assert plan.position_ids.tolist() == [3, 5, 6, 7]
    assert plan.sample_rows.tolist() == [0, 1, 2, 3]
    assert scheduled.sampled == (plain, drafted, drafted, drafted)
    assert drafted.num_computed == len(drafted.tokens) == 6, "guesses do not count as stored"


def test_single_tokens_stand_in_front_of_drafts():
    scheduler, [drafted, plain] = started([3, 5])
    drafted.draft = [91]
    scheduled = step(scheduler)
    assert scheduled.sequences == (plain, drafted)
    assert scheduled.plan.num_decode == 1


def test_confirmed_guesses_keep_their_slots_and_rejected_ones_are_written_again():
    scheduler, [sequence] = started([6])
    sequence.draft = [91, 92, 93]
    first = step(scheduler).plan
    sequence.append(91, is_stored=True)
    sequence.append(55)
    sequence.draft = []
    second = step(scheduler).plan
    assert second.input_ids.tolist() == [55]
    assert second.position_ids.tolist() == [8]
    assert second.slot_mapping[0] == first.slot_mapping[2]
    assert second.chunks[0].num_keys == 9, "nothing behind the new token is read"


def test_guesses_take_what_prompts_leave():
    scheduler, [first, second] = started([3, 3], budget=16)
    first.draft, second.draft = [1, 2, 3], [4, 5, 6]
    late = Sequence(list(range(10)), 2, id=7)
    scheduler.submit([late])
    scheduled = step(scheduler)
    assert [chunk.num_new for chunk in scheduled.plan.chunks] == [4, 2, 10], "16 - 2 - 10 = 4 guesses"
    assert scheduled.sampled.count(late) == 1


@pytest.mark.parametrize("seed", range(20))
def test_any_draft_and_any_verdict_leave_one_story(seed):
    """Random guesses, confirmed up to a random one: rows, positions and slots are those of the plain run."""
    rng = np.random.default_rng(seed)
    scheduler, sequences = started([3, 7, 12], max_new_tokens=12, budget=24)
    slots: dict[tuple[int, int], int] = {}
    while scheduler.running:
        for sequence in scheduler.running:
            room = sequence.num_projected - len(sequence.tokens)
            sequence.draft = rng.integers(0, 90, rng.integers(0, room + 1)).tolist() if room else []
        scheduled = step(scheduler)
        scheduler.check()
        plan = scheduled.plan
        for index, (chunk, sequence) in enumerate(zip(plan.chunks, scheduled.sequences, strict=True)):
            rows = range(*plan.cu_seqlens_q[index : index + 2])
            assert chunk.start == len(sequence.tokens) - 1
            assert [int(plan.position_ids[row]) for row in rows] == list(range(chunk.start, chunk.num_keys))
            for row, position in zip(rows, range(chunk.start, chunk.num_keys), strict=True):
                slot = int(plan.slot_mapping[row])
                assert slots.setdefault((sequence.id, position), slot) == slot
            assert scheduled.sampled.count(sequence) == chunk.num_new
        assert len(set(plan.slot_mapping.tolist())) == plan.num_tokens
        for sequence in dict.fromkeys(scheduled.sampled):
            for guess in sequence.draft[: rng.integers(0, scheduled.sampled.count(sequence))]:
                sequence.append(guess, is_stored=True)
            sequence.append(int(rng.integers(0, 90)))
            assert sequence.num_pending == 1
            if sequence.num_output >= sequence.max_new_tokens:
                assert sequence.num_output == sequence.max_new_tokens
                scheduler.finish(sequence)
    assert all(sequence.num_output == 12 for sequence in sequences)
    assert scheduler.pool.num_used == 0


def test_guesses_are_what_followed_the_last_tokens_before():
    story = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert Drafter(2, story[:6]).guess(story, 9) == [4, 5]
    assert Drafter(9).guess(story, 9) == [4, 5, 6, 1, 2, 3, 4, 5, 6], "read on into its own guesses"
    assert Drafter(9).guess(story, 3) == [4, 5, 6]
    assert Drafter(9).guess(story, 0) == []
    assert Drafter(9).guess([1, 2, 3, 4], 9) == []
    assert Drafter(9).guess([7], 9) == []


def test_a_longer_match_goes_first_and_a_later_one_among_equals():
    assert Drafter(1).guess([9, 1, 2, 3, 5, 1, 2, 4, 9, 1, 2], 9) == [3], "9 1 2 was followed by 3, 1 2 last by 4"
    assert Drafter(1).guess([1, 2, 3, 1, 2, 4, 1, 2], 9) == [4]


@pytest.mark.parametrize("seed", range(5))
def test_guesses_are_those_of_a_plain_search(seed):
    rng = np.random.default_rng(seed)
    story, drafter = rng.integers(0, 4, 5).tolist(), Drafter(6)
    for _ in range(60):
        assert drafter.guess(story, 6) == searched(story, 6)
        story += rng.integers(0, 4, rng.integers(1, 4)).tolist()


def searched(story, count):
    for size in SIZES:
        for end in range(len(story) - 1, size - 1, -1):
            if story[end - size : end] == story[-size:]:
                grown = list(story)
                for index in range(end, end + count):
                    grown.append(grown[index])
                return grown[len(story) :]
    return []


def test_guessing_pauses_by_counts_and_longer_each_time():
    story, drafter, tried = [1] * 8, Drafter(4), []
    for _ in range(600):
        guesses = drafter.guess(story, 4)
        if guesses:
            tried.append(len(story))
            drafter.record(len(guesses), 0)
        story += [1]
    gaps = np.diff(tried)
    pauses = gaps[gaps > 1].tolist()
    assert pauses == [FIRST_PAUSE * 2**turn for turn in range(len(pauses))]
    assert len(pauses) >= 3
    lost = ROW_COST * drafter.num_proposed
    assert lost <= (CREDIT + 1) * (len(pauses) + 1), "a bounded loss between two pauses"


def test_guesses_that_pay_go_on():
    story, drafter = [1, 2] * 4, Drafter(4)
    for _ in range(200):
        assert drafter.guess(story, 4)
        drafter.record(4, 1)
        story += [1, 2]
    assert (drafter.num_proposed, drafter.num_accepted) == (800, 200)
