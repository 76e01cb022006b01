"""What a run's figures say: counted by hand, and each lever only where its figure points at it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app import render
from app.board import Board, CardValues, SharedValues
from app.explain import COMPUTE, MEMORY, Cost, RunFacts, StepNote, common_tokens, compare, explain
from app.handlers.run import RunHandlers
from app.i18n import LANGUAGES
from app.run_facts import cost_of
from app.session import Session
from kev_engine.runtime.machine import Machine

COST = Cost(body_weights=1000, head_weights=200, weight_size=4, num_layers=2, num_heads=3, head_dim=5,
            kv_bytes_per_token=80)
MACHINE = Machine(flops_per_second=1e6, bytes_per_second=1e5)
PROMPT = StepNote(num_tokens=100, prompt_tokens=100, num_sequences=2, num_rows=2, cells=2550, keys=100, forward_ms=300)
DECODE = StepNote(num_tokens=2, prompt_tokens=0, num_sequences=2, num_rows=2, cells=102, keys=102, forward_ms=200,
                  other_ms=10)
FACTS = RunFacts(prompt_tokens=100, cached_tokens=0, common_tokens=0, output_tokens=4, kv_peak_share=0.1, preemptions=0,
                 ttft_ms=310, tpot_ms=210, queue_ms=1)


def levers(told):
    return {lever.name for lever in told.levers}


def test_operations_and_bytes_are_those_of_a_hand_count():
    assert COST.flops(PROMPT) == 2 * 1000 * 100 + 2 * 200 * 2 + 4 * 2 * 3 * 5 * 2550
    assert COST.weight_bytes(PROMPT) == 1200 * 4
    assert COST.weight_bytes(replace(PROMPT, num_rows=0)) == 1000 * 4
    assert COST.kv_bytes(DECODE) == (102 + 2) * 80
    told = explain([PROMPT, DECODE, DECODE], FACTS, COST, MACHINE)
    assert (told.prefill.forwards, told.decode.forwards, told.decode.sequences) == (1, 2, 4)
    assert (told.prefill.ms, told.decode.ms, told.other_ms, told.total_ms) == (300, 400, 20, 720)
    assert told.decode.intensity == COST.flops(DECODE) / (1200 * 4 + 104 * 80)
    assert (told.prefill.roof, told.decode.roof) == (COMPUTE, MEMORY)
    assert told.prefill.reached == pytest.approx(COST.flops(PROMPT) / 1e6 * 1e3 / 300)


def test_without_a_measured_machine_no_roof_is_named():
    told = explain([PROMPT, DECODE], FACTS, COST, None)
    assert told.prefill.roof is told.decode.reached is None
    assert "overhead" not in levers(told)


@pytest.mark.parametrize(("lever", "facts"), [
    ("queue", {"queue_ms": 200}), ("share", {"common_tokens": 60}), ("preempted", {"preemptions": 2}),
    ("crowded", {"kv_peak_share": 0.95}), ("drafts_few", {"draft_proposed": 10, "draft_accepted": 1}),
    ("drafts", {"draft_proposed": 10, "draft_accepted": 9}),
])
def test_a_lever_is_named_where_its_figure_points_at_it(lever, facts):
    assert lever not in levers(explain([PROMPT, DECODE], FACTS, COST, MACHINE))
    assert lever in levers(explain([PROMPT, DECODE], replace(FACTS, **facts), COST, MACHINE))


def test_what_a_step_reads_and_waits_for_decides_its_levers():
    long = replace(DECODE, keys=9000, cells=9000)
    assert "kv" in levers(explain([long], FACTS, COST, MACHINE))
    short = replace(DECODE, keys=4, cells=4)
    assert "weights" in levers(explain([short], FACTS, COST, MACHINE))
    assert "overhead" in levers(explain([replace(short, forward_ms=9000)], FACTS, COST, MACHINE))
    assert "drawing" in levers(explain([replace(short, other_ms=900)], FACTS, COST, MACHINE))
    mixed = replace(PROMPT, num_tokens=101, num_sequences=3)
    assert "mixed" in levers(explain([mixed, DECODE], FACTS, COST, MACHINE))
    wide = replace(DECODE, num_tokens=5000, num_sequences=5000, num_rows=5000, keys=5000)
    assert "wide" in levers(explain([wide], FACTS, replace(COST, kv_bytes_per_token=0), MACHINE))


def test_prompts_that_begin_alike_are_counted_in_blocks_beyond_what_they_share():
    same = (tuple(range(40)), 0, None)
    assert common_tokens([same, same, ((99, *range(40)), 0, None)], 16) == 32
    assert common_tokens([same, (tuple(range(40)), 32, None)], 16) == 0
    assert common_tokens([same, (tuple(range(20)), 0, None)], 16) == 16
    assert common_tokens([same, (tuple(range(40)), 0, "pirate")], 16) == 0, "an adapter has keys of its own"


def test_only_figures_that_moved_are_told():
    first = explain([PROMPT, DECODE], FACTS, COST, MACHINE)
    assert compare(first, first) == ()
    second = explain([PROMPT, DECODE], replace(FACTS, prompt_tokens=500, ttft_ms=900, model="other"), COST, MACHINE)
    assert {change.name for change in compare(second, first)} == {"ttft", "prompt_tokens", "model"}


def test_a_run_is_explained_from_its_own_figures(tiny_engine):
    session, handlers = Session("preset.shared"), RunHandlers(tiny_engine)
    card = CardValues("Who?", shared="terms", temperature="0", max_new_tokens="6")
    cards = Board({"A": card, "B": card}, (SharedValues("terms", "word " * 60),))
    for _ in range(2):
        list(handlers.run(session, cards))
    told = session.view.explanation
    stats = session.view.run.stats
    assert told.prefill.forwards + told.decode.forwards == len(stats.tokens_per_forward)
    assert told.prefill.tokens + told.decode.tokens == sum(stats.tokens_per_forward)
    assert told.prefill.ms + told.decode.ms == pytest.approx(stats.forward_ms)
    assert told.facts.cached_tokens > 0
    assert "cached" in {change.name for change in compare(told, session.view.before)}
    for language in LANGUAGES:
        shown = render.screen(session.view, tiny_engine.info, handlers.token_texts, language)["explain"]
        assert shown.count("<tr>") == 3
        assert "{" not in shown


def test_the_weights_of_a_model_are_counted_once(tiny_engine):
    cost, info = cost_of(tiny_engine.info), tiny_engine.info
    assert cost.weight_size == 4
    assert 0 < cost.body_weights * 4 < info.weight_bytes
    machine = tiny_engine.machine()
    assert machine is tiny_engine.machine()
    assert machine.flops_per_second > machine.bytes_per_second > 1e8
    assert json.dumps(info.num_layers) != "0"
