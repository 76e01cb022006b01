"""Scheduler: who is admitted, who takes part in a step with how many tokens, and who gives way. No model runs."""

from __future__ import annotations

import numpy as np
import pytest

from kev_engine.cache.blocks import BlockPool
from kev_engine.cache.prefix import KeyChain, PrefixCache
from kev_engine.config import POLICIES as NAMES
from kev_engine.runtime.policy import AGEING_STEPS, AGEING_TOKENS, FIFO, POLICIES, Policy
from kev_engine.runtime.scheduler import Scheduled, Scheduler
from kev_engine.runtime.sequence import Sequence

SIZE = 4
PRIORITY, SHORTEST = POLICIES["priority"], POLICIES["shortest-first"]


def story(length: int, new: int = 3, parent: Sequence | None = None, **fields) -> Sequence:
    return Sequence(list(range(length)), new, parent=parent, **fields)


def scheduler(blocks: int, budget: int = 64, cached: bool = False, kept: int | None = None, **settings) -> Scheduler:
    """With `cached`, `kept` free blocks are kept, or all."""
    pool = BlockPool(blocks + 1, SIZE)
    cache = PrefixCache(pool, blocks if kept is None else kept) if cached else None
    return Scheduler(pool, budget, cache=cache, **settings)


def step(scheduler: Scheduler) -> Scheduled:
    """One step whose rows all draw token 1; a story ends with its last new token."""
    scheduled = scheduler.next_step()
    assert scheduled is not None
    scheduler.commit(scheduled)
    for sequence in scheduled.sampled:
        sequence.append(1)
        if sequence.num_output == sequence.max_new_tokens:
            scheduler.finish(sequence)
    scheduler.check()
    return scheduled


def drain(scheduler: Scheduler, limit: int = 1000) -> list[Sequence]:
    """Step until idle; the stories in the order of their last token."""
    ended: list[Sequence] = []
    while not scheduler.is_idle:
        assert limit, "it does not end"
        limit -= 1
        ended += [sequence for sequence in step(scheduler).sampled if sequence.is_finished]
    assert scheduler.pool.num_used == 0
    return ended


def test_the_settings_name_the_policies_there_are():
    assert tuple(POLICIES) == NAMES


def test_all_prompts_enter_in_one_forward_where_nobody_decodes():
    queue = scheduler(60, budget=64, prefill_chunk=4)
    queue.submit([story(20), story(20), story(24)])
    assert [chunk.num_new for chunk in step(queue).plan.chunks] == [20, 20, 24]


def test_beside_decoding_prompts_enter_in_chunks():
    queue = scheduler(60, budget=64, prefill_chunk=5)
    early = story(3, new=9)
    queue.submit([early])
    step(queue)
    queue.submit([story(8, new=1), story(9, new=1)])
    counts = [[chunk.num_new for chunk in step(queue).plan.chunks] for _ in range(5)]
    assert counts == [[1, 5], [1, 3, 2], [1, 5], [1, 2], [1]], "the cap is for all prompts of the step together"
    assert early.num_output == 6, "it drew in every step"


def test_a_prompt_of_better_rank_does_not_wait_for_a_long_one():
    queue = scheduler(60, budget=64, prefill_chunk=5, policy=PRIORITY)
    queue.submit([story(3, new=9)])
    step(queue)
    long, urgent, late = story(40), story(8, priority=1), story(4)
    queue.submit([long])
    step(queue)
    queue.submit([urgent, late])
    assert [[chunk.num_new for chunk in step(queue).plan.chunks] for _ in range(2)] == [[1, 5], [1, 3, 2]]
    assert (urgent.num_output, long.num_computed) == (1, 7)
    assert queue.waiting == [late], "behind the long one, it would only hold memory"


def test_decoding_beyond_the_budget_leaves_no_room_for_prompts():
    queue = scheduler(60, budget=3, prefill_chunk=8)
    queue.submit([story(1, new=5) for _ in range(3)])
    step(queue)
    queue.submit([story(4)])
    assert [chunk.num_new for chunk in step(queue).plan.chunks] == [1, 1, 1]
    assert len(drain(queue)) == 4


ORDERS = [(FIFO, [0, 1, 2, 3]), (SHORTEST, [3, 1, 2, 0]), (PRIORITY, [2, 0, 1, 3])]


@pytest.mark.parametrize(("policy", "order"), ORDERS, ids=NAMES)
def test_the_policy_orders_who_wait(policy, order):
    queue = scheduler(8, policy=policy)
    stories = [story(length, priority=priority) for length, priority in ((20, 1), (10, 1), (15, 2), (4, 0))]
    running = story(25, new=8, priority=9)
    queue.submit([running])
    step(queue)
    queue.submit(stories)
    assert [stories.index(sequence) for sequence in queue.waiting] == order
    assert len(drain(queue)) == 5


def test_nobody_overtakes_the_first_in_the_queue():
    queue = scheduler(8)
    first, large, small = story(16, new=9), story(20), story(2)
    queue.submit([first, large, small])
    step(queue)
    assert queue.waiting == [large, small], "there is room for the small one, which would keep the large one out"
    drain(queue)


def wait_among_favoured(policy: Policy, patient: Sequence, limit: int) -> int:
    """How many steps this story waits while others that the policy favours keep coming and fill the memory."""
    queue = scheduler(40, budget=200, policy=policy)
    queue.submit([*(story(38, new=4, priority=1) for _ in range(4)), patient])
    for count in range(limit):
        if patient.num_admissions:
            return count
        step(queue)
        queue.submit([story(38, new=4, priority=1)])
    return limit


@pytest.mark.parametrize(("policy", "bound"), [(SHORTEST, (130 - 41) // AGEING_TOKENS), (PRIORITY, AGEING_STEPS)])
def test_ageing_ends_the_waiting_of_the_least_favoured(policy, bound):
    waited = wait_among_favoured(policy, story(130, new=1), limit=2 * bound + 20)
    assert bound <= waited < 2 * bound + 20, "overtaken only by those that came in the first `bound` steps"


def test_without_ageing_it_would_starve():
    """The mutation of the test above: ranks without the step of arrival."""
    ageless = Policy("ageless", lambda group, step: -max(member.priority for member in group))
    limit = 3 * AGEING_STEPS
    assert wait_among_favoured(ageless, story(130, new=1), limit) == limit


def test_a_story_of_higher_priority_takes_the_place_of_the_last_in_rank():
    queue = scheduler(12, policy=PRIORITY)
    low, middle = story(9, new=8), story(9, new=8, priority=1)
    queue.submit([low, middle])
    step(queue)
    urgent = story(17, new=4, priority=2)
    queue.submit([urgent])
    step(queue)
    assert queue.running == [middle, urgent]
    assert queue.waiting == [low]
    assert low.num_output == 1, "what it drew stays"
    ended = drain(queue)
    assert ended[-1] is low
    assert (low.num_output, low.num_admissions) == (8, 2)


@pytest.mark.parametrize(("priority", "length"), [(0, 9), (1, 50)])
def test_nobody_gives_way_to_an_equal_or_in_vain(priority, length):
    queue = scheduler(12, policy=PRIORITY)
    running = [story(9, new=16), story(9, new=16, priority=2)]
    queue.submit(running)
    step(queue)
    queue.submit([story(length, priority=priority)])
    step(queue)
    assert set(queue.running) == set(running)


def test_an_adapter_slot_is_made_free_as_well():
    queue = scheduler(40, policy=PRIORITY, max_adapters=1)
    low = story(5, adapter_id=1)
    queue.submit([low])
    step(queue)
    urgent = story(5, adapter_id=2, priority=1)
    queue.submit([urgent])
    step(queue)
    assert (queue.running, queue.waiting) == ([urgent], [low])


def test_an_urgent_reader_brings_its_context_and_the_other_readers_along():
    queue = scheduler(40, policy=PRIORITY)
    plain = story(4, priority=1)
    context = story(8, new=0)
    readers = [story(12, parent=context), story(12, parent=context, priority=2)]
    queue.submit([plain, context, *readers])
    assert queue.waiting == [context, *readers, plain]
    assert len(drain(queue)) == 3


def test_a_context_that_nobody_reads_gives_way_to_who_cannot_fit_beside_it():
    """A context waits in memory for its second reader, and that one behind a story of better rank."""
    queue = scheduler(20, policy=SHORTEST)
    context = story(40, new=0)
    readers = [story(41, new=40, parent=context) for _ in range(2)]
    queue.submit([context, *readers])
    for _ in range(2):
        step(queue)
    large = story(41, new=1)
    queue.submit([large])
    assert queue.waiting == [large, readers[1]]
    assert drain(queue) == [readers[0], large, readers[1]]
    assert context.num_admissions == 2, "it was given up and computed again"


def test_a_context_waits_until_its_first_reader_fits_beside_it():
    queue = scheduler(10)
    queue.submit([story(16, new=5)])
    step(queue)
    context = story(12, new=0)
    queue.submit([context, story(14, new=12, parent=context)])
    step(queue)
    assert len(queue.waiting) == 2, "3 of 5 free blocks would do for the context, which is of no use alone"
    drain(queue)


def test_a_preempted_reader_needs_its_context_no_more():
    queue = scheduler(10, policy=PRIORITY)
    context = story(8, new=0)
    readers = [story(10, new=6, parent=context), story(10, new=6, parent=context)]
    queue.submit([context, *readers])
    step(queue)
    step(queue)
    assert context.is_finished
    queue.submit([story(33, new=4, priority=1)])
    step(queue)
    assert queue.waiting == readers
    assert all(reader.block_table.size == 0 for reader in readers)
    again = drain(queue)
    assert set(readers) < set(again)


def test_what_gave_way_is_found_in_the_cache_if_nobody_wanted_its_blocks():
    queue = scheduler(30, policy=PRIORITY, cached=True, max_adapters=1)
    low = story(20, new=8, adapter_id=1, chain=KeyChain(b"root"))
    queue.submit([low])
    for _ in range(5):
        step(queue)
    urgent = story(5, new=2, adapter_id=2, priority=1)
    queue.submit([urgent])
    for _ in range(2):
        step(queue)
    assert urgent.is_finished
    chunk = step(queue).plan.chunks[0]
    assert (chunk.start, chunk.num_new) == (24, 1), "24 tokens were computed, all of them in full blocks"
    assert low.num_cached == 0, "that is for what others computed"
    drain(queue)


def test_who_gives_way_may_push_out_of_the_cache_what_the_urgent_one_found_there():
    queue = scheduler(6, policy=PRIORITY, cached=True, kept=2)
    queue.submit([story(9, chain=KeyChain(b"root"))])
    drain(queue)
    low = story(9, new=8, chain=KeyChain(b"other"))
    queue.submit([low])
    step(queue)
    urgent = story(9, priority=1, chain=KeyChain(b"root"))
    assert len(queue._cached_blocks(urgent)) == 2
    queue.submit([urgent])
    step(queue)
    assert (queue.running, urgent.num_cached) == ([urgent], 0)
    drain(queue)


def test_a_context_finds_all_but_the_block_of_its_last_token():
    queue = scheduler(30, cached=True)
    for expected in (0, 4):
        context = story(8, new=0, chain=KeyChain(b"root"))
        reader = story(12, parent=context, chain=KeyChain(b"root"))
        queue.submit([context, reader])
        assert step(queue).plan.chunks[0].start == expected
        assert context.num_cached == expected
        step(queue)
        assert reader.num_cached == expected
        drain(queue)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("name", NAMES)
def test_random_arrivals_all_end_and_leave_nothing(name, seed):
    """Contexts in contexts, adapters, cancellations, in memory for two or three stories."""
    rng = np.random.default_rng(seed)
    queue = scheduler(14, budget=int(rng.integers(8, 40)), policy=POLICIES[name], max_adapters=2,
                      prefill_chunk=int(rng.integers(1, 9)), cached=bool(rng.integers(2)),
                      kept=int(rng.integers(1, 31)))
    stories: list[Sequence] = []
    cancelled: set[Sequence] = set()
    for _ in range(40):
        if rng.random() < 0.5:
            group = random_group(rng)
            queue.submit(group)
            stories += [member for member in group if not member.is_context]
        if stories and rng.random() < 0.2:
            victim = stories[int(rng.integers(len(stories)))]
            cancelled.add(victim)
            queue.finish(victim)
        if not queue.is_idle:
            step(queue)
    drain(queue)
    assert all(member.num_output == member.max_new_tokens for member in stories if member not in cancelled)


def random_group(rng: np.random.Generator) -> list[Sequence]:
    """A plain story, or a context (of a context) with readers; all fit into 14 blocks by themselves."""
    adapter, priority = int(rng.integers(0, 4)), int(rng.integers(0, 3))

    def made(length: int, new: int, parent: Sequence | None = None) -> Sequence:
        return story(length, new, parent, adapter_id=adapter, priority=priority, chain=KeyChain(bytes([adapter])))

    group: list[Sequence] = []
    parent = None
    for _ in range(int(rng.integers(0, 3))):
        parent = made((0 if parent is None else parent.num_prompt) + int(rng.integers(1, 9)), 0, parent)
        group.append(parent)
    start = 0 if parent is None else parent.num_prompt
    for _ in range(int(rng.integers(1, 3))):
        group.append(made(start + int(rng.integers(1, 9)), int(rng.integers(1, 9)), parent))
    return group
