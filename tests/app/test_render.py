"""What the page shows: every text escaped, and a mask that is the rule's, cell for cell."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import render
from app.board import CARD_IDS, Board
from app.i18n import EN, LANGUAGES
from app.question_file import QuestionFile
from app.run_view import CardView, Piece, RunView, SampleView
from kev_engine import PlanMade, Prefilling, Question, SamplingParams, Step, StepPlan, pack
from kev_engine.errors import UnknownAdapter
from kev_engine.isolation import mask
from kev_engine.isolation.plan import Chunk
from kev_engine.runtime.events import OTHERS, RESERVED, KVUsage, SegmentInfo

ROOT = Path(__file__).parents[2]
HOSTILE = ["${alert(1)}", "`${1+1}`", "<img src=x onerror=alert(1)>", "</script><script>", "{{value}}", "\" onload='x'"]


def texts_of(ids):
    return [f"t{token}" for token in ids]


NONE = np.zeros(0, np.int64)
USAGE = KVUsage(32, 64, 2000, 32, (16,), 16, np.array([-1, 0, OTHERS, RESERVED, -1]), np.array([0, 2, 1, 1, 0]),
                np.array([0, 1, 1, 1, 0]))


def view_of(lengths, parents, generated, others=0):
    """A run whose prompts were prefilled, and whose segments then generated so many tokens each."""
    layout = pack(lengths, parents)
    infos = tuple(
        SegmentInfo(CARD_IDS[k % 32] if not is_parent else f"ctx{k}", tuple(range(length)), is_shared=is_parent)
        for k, (length, is_parent) in enumerate(zip(lengths, [k in parents for k in range(len(lengths))], strict=True))
    )
    plan = PlanMade(layout, infos, 1000, 2000)
    chunks = [Chunk(k, layout.position_starts[k], n + generated[k]) for k, n in enumerate(lengths)]
    owners = list(range(len(lengths)))
    if others:
        chunks.append(Chunk(len(lengths), 5, others))
        owners.append(OTHERS)
    rows = sum(chunk.num_new for chunk in chunks)
    none = np.zeros(0, np.int64)
    step_plan = StepPlan(tuple(chunks), np.zeros(rows, np.int64), none, none, none, none, none, none, 16)
    usage = replace(USAGE, bytes_by_segment=(16, *[0] * (len(lengths) - 1)))
    step = Step(3, step_plan, tuple(owners), tuple(n + g for n, g in zip(lengths, generated, strict=True)), usage,
                1, 1, 1)
    cards = {info.name: CardView(samples=(SampleView(token_ids=tuple(range(50))),))
             for info in infos if not info.is_shared}
    return RunView(cards=cards).after(plan).after(step)


def random_tree(seed):
    chance = random.Random(seed)
    count = chance.randint(1, 7)
    lengths = [chance.randint(1, 9) for _ in range(count)]
    parents = [None] + [chance.choice([None, *range(k)]) for k in range(1, count)]
    generated = [0 if k in parents else chance.randint(0, 4) for k in range(count)]
    return lengths, parents, generated


def cells_of(story):
    """The matrix that the canvas's bands stand for; only a test ever makes it."""
    cells = np.zeros((story["size"], story["size"]), dtype=bool)
    for row, row_end, key, key_end, grows in story["bands"]:
        for index in range(row, row_end):
            assert not cells[index, key:key_end + (index - row) * grows].any()
            cells[index, key:key_end + (index - row) * grows] = True
    return cells


@pytest.mark.parametrize("seed", range(60))
def test_the_canvas_gets_exactly_the_rule(seed):
    lengths, parents, generated = random_tree(seed)
    view = view_of(lengths, parents, generated)
    story = json.loads(render.mask_story(view, texts_of))
    assert np.array_equal(cells_of(story), mask.dense(pack([n + g for n, g in zip(lengths, generated, strict=True)],
                                                           parents)))
    for part, length, more in zip(story["segments"], lengths, generated, strict=True):
        assert (part["prompt"], part["done"], len(part["texts"])) == (length, length + more, more)


def test_a_leaking_band_would_be_seen():
    """The comparison above can fail: one key more in one band, and the cells differ."""
    view = view_of([3, 4], [None, None], [0, 0])
    story = json.loads(render.mask_story(view, texts_of))
    story["bands"][1][2] -= 1
    assert not np.array_equal(cells_of(story), mask.dense(pack([3, 4])))


@pytest.mark.parametrize("seed", range(20))
def test_the_step_lists_each_key_once_and_strangers_without_name(seed):
    lengths, parents, generated = random_tree(seed)
    view = view_of(lengths, parents, generated, others=2)
    story = json.loads(render.mask_story(view, texts_of))
    [(first, count, rows)] = story["steps"]
    assert (first, count) == (3, 1)
    assert rows[-1] == [OTHERS, 5, 2]
    for segment, start, num_new in rows[:-1]:
        part = story["segments"][segment]
        assert (start, num_new) == (part["first"], part["end"] - part["start"])


@pytest.mark.parametrize("seed", range(20))
def test_the_steps_of_a_run_unfold_to_what_was_executed(seed):
    """Prompts, decodes, endings, drafts and strangers in any order: the stretches give every row of every step back."""
    chance = random.Random(seed)
    starts, executed = dict.fromkeys(range(4), 0), []
    view = RunView().after(PlanMade(pack([5] * 4), (SegmentInfo("A", (1,) * 5),) * 4, 0, 0))
    for index in range(60):
        alive = [k for k in starts if k * 9 < 60 - index] or [0]
        rows = [(k, starts[k], chance.choice([1, 1, 1, 1, 4])) for k in alive]
        if chance.random() < 0.2:
            rows.append((OTHERS, chance.randint(0, 9), 1))
        for k, start, count in rows:
            starts[k] = start + count
        starts.pop(OTHERS, None)
        executed.append(rows)
        plan = StepPlan(tuple(Chunk(0, start, count) for _, start, count in rows), *[NONE] * 7, 16)
        view = view.after(Step(index, plan, tuple(k for k, _, _ in rows), (), USAGE, 1, 1, 1))
    unfolded = [
        [(segment, start + on, count) for segment, start, count in stretch.rows]
        for stretch in view.steps for on in range(stretch.count)
    ]
    assert unfolded == executed
    assert len(view.steps) < 60


def test_guesses_that_were_not_drawn_are_no_part_of_the_story(tiny_engine):
    """Random answers guess wrong often; the drawn story is as long as the text says."""
    asked = [
        Question(f"q{seed}", "the dog and the dog and the dog", max_new_tokens=30, draft=6, ignore_eos=True,
                 sampling=SamplingParams(temperature=0.6, seed=seed))
        for seed in range(4)
    ]
    view = RunView()
    for event in tiny_engine.stream(asked):
        view = view.after(event)
    assert view.run.stats.draft_proposed > view.run.stats.draft_accepted
    for segment, info in enumerate(view.plan.segments):
        answer = view.cards[info.name].samples[0].answer
        assert 0 <= answer.prompt_tokens + answer.output_tokens - view.executed[segment] <= 1
    for stretch in view.steps:
        for segment, start, num_new in stretch.rows:
            assert start + (stretch.count - 1) + num_new <= view.executed[segment]


@pytest.mark.parametrize(("executed", "told"), [
    ((0, 0), "waiting · 16 prompt tokens"), ((6, 0), "reading 6 of 16 tokens"), ((6, 4), "reading 10 of 16 tokens")])
def test_a_waiting_question_tells_how_much_of_its_prompt_is_read(executed, told):
    """The shared context that it waits for counts as its own."""
    view = replace(view_of([6, 10], [None, 0], [0, 0]), executed=executed, cards={"B": CardView()})
    assert json.loads(render.answer(view, "B", EN))["waiting"] == told


def test_a_question_in_a_long_forward_tells_which_of_its_tokens_are_in_which_layer():
    """The shared context under way counts as its own; what only a neighbour reads does not."""
    view = replace(view_of([6, 10, 10], [None, 0, None], [0, 0, 0]), executed=(0, 0, 10),
                   cards={"B": CardView(), "C": CardView()})
    plan = replace(view.step.plan, chunks=(Chunk(0, 0, 6), Chunk(7, 0, 90)))
    view = view.after(Prefilling(plan, (0, OTHERS), 12, 30))
    waiting = [json.loads(render.answer(view, letter, EN))["waiting"] for letter in "BC"]
    assert waiting == ["reading tokens 1–6 of 16 · layer 12 of 30", "reading 10 of 10 tokens"]
    told = json.loads(render.answer(view.after(view.step), "B", EN))["waiting"]
    assert "layer" not in told, "the forward is over"


def test_a_long_run_travels_in_a_few_hundred_kilobytes():
    """32 questions of 1,000 tokens each, 400 steps on: what one frame of each picture sends."""
    view = view_of([1000] * 32, [None] * 32, [0] * 32)
    for index in range(400):
        plan = StepPlan(tuple(Chunk(k, 1000 + index, 1) for k in range(32)), *[NONE] * 7, 16)
        view = view.after(replace(view.step, index=4 + index, plan=plan, segments=tuple(range(32))))
    story = render.mask_story(view, texts_of)
    texts = render.prompt_texts(view, lambda ids: [" token"] * len(ids))
    assert json.loads(story)["size"] == 32 * 1400
    assert len(story) < 300_000
    assert len(texts) < 300_000
    info = type("Info", (), {"kv_bytes_budget": 2**30, "bytes_per_token": 1024})
    assert len(render.kv_gauge(view, info)) < 20_000


def test_the_mask_never_travels_as_a_matrix():
    view = view_of([4000, 4000], [None, None], [0, 0])
    assert len(render.mask_story(view, texts_of)) < 4000


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_text_is_text(text, language):
    error = UnknownAdapter(text, [text])
    for shown in (
        render.sentence_line("error.other", language, message=text), render.verdict(RunView(notice=error), language),
        render.imported(QuestionFile(Board(), ((text, error),) * 9), language),
        render.cell(view_of([3], [None], [0]), 1, lambda ids: [text] * len(ids), language),
    ):
        assert "<img" not in shown
        assert "<script" not in shown
        assert not set("${}`") & set(shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_an_answer_travels_as_text(text):
    view = RunView(cards={"A": CardView(samples=(SampleView((Piece(text, 1),), (1,)),)),
                          "B": CardView(error=UnknownAdapter(text, [text]))})
    assert json.loads(render.answer(view, "A", EN))["samples"][0]["text"] == text
    assert text in json.loads(render.answer(view, "B", EN))["mistake"]


@pytest.mark.parametrize("file", sorted((ROOT / "assets" / "js").rglob("*.js")), ids=lambda file: file.name)
def test_no_script_of_the_page_writes_markup(file):
    """Texts of users and models reach the page through textContent alone."""
    text = file.read_text("utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "eval("):
        assert way not in text


def test_a_clicked_query_tells_the_runs_of_the_rule():
    view = view_of([3, 4], [None, 0], [0, 2])
    told = render.cell(view, 6, texts_of, EN)
    assert "reads 7 of 9 keys: 0–6" in told
    assert "position 6" in told
    assert render.cell(view, 9, texts_of, EN) == ""


def test_the_gauge_lists_blocks_in_use_without_the_zero_block():
    view = view_of([3], [None], [0])
    info = type("Info", (), {"kv_bytes_budget": 2000, "bytes_per_token": 1024})
    gauge = json.loads(render.kv_gauge(view, info))
    assert gauge["total"] == 4
    assert gauge["blocks"] == [[0, 1, 0, 2, 1], [1, 1, OTHERS, 1, 1], [2, 1, RESERVED, 1, 1]]
    assert (gauge["segments"], gauge["others"]) == ([[0, "A", 16]], 16)


def test_blocks_that_are_alike_travel_as_one_stretch():
    owner = np.array([-1] + [0] * 300 + [1] * 4 + [-1] * 8 + [1] * 2)
    ones = np.ones(315, int)
    usage = replace(USAGE, bytes_by_segment=(300, 6), block_owner=owner, block_refs=ones, block_generation=ones)
    view = view_of([3, 3], [None, None], [0, 0])
    view = view.after(replace(view.step, kv=usage))
    info = type("Info", (), {"kv_bytes_budget": 2000, "bytes_per_token": 1024})
    blocks = json.loads(render.kv_gauge(view, info))["blocks"]
    assert blocks == [[0, 300, 0, 1, 1], [300, 4, 1, 1, 1], [312, 2, 1, 1, 1]]


def test_the_line_over_a_long_run_keeps_its_peak():
    view = replace(view_of([3], [None], [0]), kv_used=(*range(1000), 5000, *range(1000)))
    info = type("Info", (), {"kv_bytes_budget": 2000, "bytes_per_token": 1024})
    line = json.loads(render.kv_gauge(view, info))["line"]
    assert len(line) <= 240
    assert max(line) == 5000


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (3.2e-6, "3e-6"), (1e-12, "1e-12"), (8.34, "8.34"),
                                             (float("inf"), "inf")])
def test_small_differences_read_as_people_write_them(value, text):
    assert render.figure(value) == text
