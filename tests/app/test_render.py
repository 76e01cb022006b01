"""What the page shows: every text escaped, and a mask that is the rule's, cell for cell."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from app import render
from app.board import Board
from app.i18n import EN, LANGUAGES, say
from app.question_file import QuestionFile
from app.run_view import CardView, RunView, SampleView
from kev_engine import PlanMade, Step, StepPlan, pack
from kev_engine.errors import UnknownAdapter
from kev_engine.isolation import mask
from kev_engine.isolation.plan import Chunk
from kev_engine.runtime.events import OTHERS, KVUsage, SegmentInfo

ROOT = Path(__file__).parents[2]
HOSTILE = ["${alert(1)}", "`${1+1}`", "<img src=x onerror=alert(1)>", "</script><script>", "{{value}}", "\" onload='x'"]


def texts_of(ids):
    return [f"t{token}" for token in ids]


def view_of(lengths, parents, generated, others=0):
    """A run whose prompts were prefilled, and whose segments then generated so many tokens each."""
    layout = pack(lengths, parents)
    infos = tuple(
        SegmentInfo("ABCDEFGH"[k % 8] if not is_parent else f"ctx{k}", tuple(range(length)), is_shared=is_parent)
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
    owner = np.array([-1, 0, OTHERS, -3, -1])
    usage = KVUsage(32, 64, 2000, 32, (16, *[0] * (len(lengths) - 1)), 16, owner, np.array([0, 2, 1, 1, 0]),
                    np.array([0, 1, 1, 1, 0]))
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
    story = json.loads(render.mask_story(view, texts_of, EN))
    assert np.array_equal(cells_of(story), mask.dense(pack([n + g for n, g in zip(lengths, generated, strict=True)],
                                                           parents)))
    for part, length, more in zip(story["segments"], lengths, generated, strict=True):
        assert (part["prompt"], part["done"], len(part["texts"])) == (length, length + more, more)


def test_a_leaking_band_would_be_seen():
    """The comparison above can fail: one key more in one band, and the cells differ."""
    view = view_of([3, 4], [None, None], [0, 0])
    story = json.loads(render.mask_story(view, texts_of, EN))
    story["bands"][1][2] -= 1
    assert not np.array_equal(cells_of(story), mask.dense(pack([3, 4])))


@pytest.mark.parametrize("seed", range(20))
def test_the_step_lists_each_key_once_and_strangers_without_name(seed):
    lengths, parents, generated = random_tree(seed)
    view = view_of(lengths, parents, generated, others=2)
    story = json.loads(render.mask_story(view, texts_of, EN))
    for row in story["step"]["rows"]:
        edges = [0] + [end for _, _, end in row["keys"]]
        assert [first for _, first, _ in row["keys"]] == edges[:-1]
        assert edges[-1] == row["start"] + row["num_new"]
    assert story["step"]["rows"][-1] == {"segment": OTHERS, "start": 5, "num_new": 2,
                                         "keys": [[render.OTHERS_COLOUR, 0, 7]]}


def test_the_mask_never_travels_as_a_matrix():
    view = view_of([4000, 4000], [None, None], [0, 0])
    assert len(render.mask_story(view, texts_of, EN)) < 4000


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
    view = RunView(cards={"A": CardView(samples=(SampleView(text, (1,)),)),
                          "B": CardView(error=UnknownAdapter(text, [text]))})
    assert json.loads(render.answer(view.cards["A"], view, "A", EN))["samples"][0]["text"] == text
    assert text in json.loads(render.answer(view.cards["B"], view, "B", EN))["mistake"]


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
    gauge = json.loads(render.kv_gauge(view, info, EN))
    assert gauge["total"] == 4
    assert [(block[0], block[1], block[3]) for block in gauge["blocks"]] == [
        (0, 0, 2), (1, render.OTHERS_COLOUR, 1), (2, render.RESERVED_COLOUR, 1)]
    assert gauge["stacks"][-1][1] == say(EN, "kv.others")


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (3.2e-6, "3e-6"), (1e-12, "1e-12"), (8.34, "8.34"),
                                             (float("inf"), "inf")])
def test_small_differences_read_as_people_write_them(value, text):
    assert render.figure(value) == text
