"""The mask as a person reads it: what it draws is the rule's, at any size, and everything is reachable by keyboard."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from app import render
from app.i18n import EN, ZH, say
from app.run_view import RunView
from kev_engine import StepPlan, pack
from kev_engine.isolation import mask
from kev_engine.isolation.plan import Chunk
from tests.app.test_render import NONE, random_tree, texts_of, view_of
from tests.browser.conftest import Visit
from tests.browser.test_run_tab import answer, fill, wait_until_done

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]

CANVAS = "document.querySelector('#mask canvas')"


@pytest.fixture(scope="module")
def ran_tab(contexts, url, engine) -> Iterator[Visit]:
    """A tab with one run of four questions, which the tests below look at."""
    seen = Visit.opened(contexts("en-US", "light", False).new_page(), url)
    seen.page.select_option("#adapter-B select", engine.adapters.names()[0])
    for letter in "ABCD":
        fill(seen.page, letter, max_new_tokens="4")
    seen.page.click("#run")
    wait_until_done(seen.page)
    yield seen
    seen.page.close()


@pytest.fixture
def ran(ran_tab: Visit) -> Iterator[Page]:
    yield ran_tab.page
    ran_tab.check()


def show(page: Page, view, texts: str = "[]") -> None:
    page.evaluate(f"([value, texts]) => {CANVAS}.kev.show(value, texts)", [render.mask_story(view, texts_of), texts])


def ask(page: Page, program: str) -> np.ndarray:
    return np.array(page.evaluate(program), dtype=bool)


def test_the_picture_reads_what_the_rule_reads(page):
    for seed in range(8):
        lengths, parents, generated = random_tree(seed)
        view = view_of(lengths, parents, generated)
        show(page, view)
        size = sum(lengths) + sum(generated)
        story = ask(page, f"""() => Array.from({{ length: {size} }}, (_, row) => Array.from({{ length: {size} }},
            (_, key) => {CANVAS}.kev.reads(row, key)))""")
        grown = pack([n + g for n, g in zip(lengths, generated, strict=True)], parents)
        assert np.array_equal(story, mask.dense(grown))


def test_any_step_of_the_scrubber_reads_what_its_plan_read(page):
    """Steps are told as stretches; whichever is chosen, its cells are those of the plan that was executed."""
    for seed in range(6):
        view, plans = decoded(seed)
        show(page, view)
        for index, plan in enumerate(plans):
            rows = np.repeat(np.arange(len(plan.chunks), dtype=np.int32), [chunk.num_new for chunk in plan.chunks])
            expected = mask.dense_step(replace(plan, segment_ids=rows))
            drawn = ask(page, f"""() => {{ const step = {CANVAS}.kev.step({index + 3});
                return Array.from({{ length: step.rows }}, (_, row) => Array.from({{ length: step.columns }},
                (_, key) => step.reads(row, key))); }}""")
            assert np.array_equal(drawn, expected), (seed, index)


def decoded(seed: int) -> tuple[RunView, list[StepPlan]]:
    """A random run after six steps in which some leave early, and the plans of its prefill and these steps."""
    chance = random.Random(seed)
    lengths, parents, _ = random_tree(seed)
    view = view_of(lengths, parents, [0] * len(lengths))
    leaves = [k for k in range(len(lengths)) if k not in parents]
    first = view.plan.layout.position_starts
    plans = [view.step.plan]
    for index in range(6):
        alive = [k for k in leaves if chance.random() < 0.8] or leaves[:1]
        chunks = tuple(Chunk(k, first[k] + lengths[k], 1) for k in alive)
        for k in alive:
            lengths[k] += 1
        plans.append(StepPlan(chunks, *[NONE] * 7, 16))
        view = view.after(replace(view.step, index=4 + index, plan=plans[-1], segments=tuple(alive)))
    return view, plans


def test_thirty_two_thousand_tokens_take_less_than_a_frame(page):
    """Both views, whole and zoomed in: the time of a draw, the pixels read back so that nothing is put off."""
    view = view_of([1000] * 32, [None, *[0] * 31], [0] * 32)
    texts = render.prompt_texts(view, lambda ids: [f"t{token}" for token in ids])
    show(page, view, texts)
    assert page.locator("#mask canvas").get_attribute("data-tokens") == "32000"
    times = {}
    for name, press in (("story", ""), ("zoomed", "+"), ("far in", "+++++++++++")):
        page.locator("#mask canvas").focus()
        for key in press:
            page.keyboard.press(key)
        times[name] = page.evaluate(f"""() => {{
            const canvas = {CANVAS}, pen = canvas.getContext('2d'), times = [];
            for (let turn = 0; turn < 15; turn++) {{
                const start = performance.now();
                canvas.kev.draw();
                pen.getImageData(0, 0, 1, 1);
                times.push(performance.now() - start);
            }}
            return Math.min(...times);
        }}""")
    assert max(times.values()) < 16, times


def test_the_hover_line_says_what_the_rule_says(ran):
    box = ran.locator("#mask canvas").bounding_box()

    def told(row: float, key: float) -> str:
        ran.mouse.move(box["x"] + box["width"] * key, box["y"] + box["height"] * row)
        return ran.locator("#mask .hover").inner_text()

    assert "(A) reads key" in told(0.1, 0.02)
    assert "(A) may not read key" in told(0.02, 0.1)
    assert "(D) may not read key" in told(0.95, 0.05)
    ran.click("#mask button[data-view='step']")
    assert ran.locator("#mask button[data-view='step']").get_attribute("aria-pressed") == "true"
    assert "reads key" in told(0.005, 0.02)
    ran.click("#mask button[data-view='story']")


def test_hover_lock_zoom_and_keys(ran):
    canvas, hover = ran.locator("#mask canvas"), ran.locator("#mask .hover")
    ran.mouse.move(5, 5)
    canvas.focus()
    ran.keyboard.press("Shift+ArrowDown")
    for _ in range(3):
        ran.keyboard.press("ArrowRight")
    expect(hover).to_contain_text("query 16")
    expect(hover).to_contain_text("reads key 3")
    ran.keyboard.press("Enter")
    expect(ran.locator("#cell")).to_contain_text("reads 17 of")
    ran.mouse.move(5, 5)
    expect(hover).to_contain_text("query 16")
    before = ran.evaluate(f"{CANVAS}.toDataURL()")
    ran.click("#mask [data-do=token]")
    ran.wait_for_function(f"before => {CANVAS}.toDataURL() !== before", arg=before)
    canvas.focus()
    ran.keyboard.press("Escape")
    expect(ran.locator("#cell")).to_have_text("")
    expect(hover).to_have_text("")
    ran.keyboard.press("0")
    total = int(ran.locator("#mask .scrub input").get_attribute("max")) + 1
    ran.keyboard.press("PageUp")
    expect(ran.locator("#mask .step")).to_have_text(say(EN, "mask.step_of", index=total - 1, total=total))
    ran.keyboard.press("PageDown")
    expect(ran.locator("#mask .step")).to_have_text(say(EN, "mask.step_of", index=total, total=total))


def test_adapters_have_colours_and_the_table_says_the_same(ran, engine):
    name = engine.adapters.names()[0]
    before = ran.evaluate(f"{CANVAS}.toDataURL()")
    ran.click("#mask [data-paint=adapter]")
    assert ran.locator("#mask .legend span").all_inner_texts() == ["base", name]
    ran.wait_for_function(f"before => {CANVAS}.toDataURL() !== before", arg=before)
    rows = ran.locator("#mask tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [["A", "base"], ["B", name], ["C", "base"], ["D", "base"]]
    ran.click("#mask [data-paint=question]")


def test_the_block_map_is_a_table_too(ran):
    """Whoever cannot see the squares reads whose they are, which, and of which generation."""
    rows = [row.split("\t") for row in ran.locator("#kv tbody tr").all_inner_texts()]
    assert [row[0] for row in rows] == ["A", "B", "C", "D", say(EN, "kv.nobody")]
    used, total = map(int, re.findall(r"\d+", ran.locator("#kv canvas").get_attribute("aria-label")))
    counts = [int(row[1]) for row in rows]
    assert sum(counts[:-1]) == used == int(ran.locator("#kv canvas").get_attribute("data-used"))
    assert sum(counts) == total
    for row in rows[:-1]:
        assert row[2].endswith("iB")
        found = re.findall(r"(\d+)(?:–(\d+))? · generation", row[3])
        blocks = [(int(first), int(last or first)) for first, last in found]
        assert sum(last - first + 1 for first, last in blocks) == int(row[1])
    assert ran.locator("#kv caption").inner_text() == ran.locator("#kv canvas").get_attribute("aria-label")
    ran.locator("#kv canvas").hover(position={"x": 3, "y": 3})
    expect(ran.locator("#kv .hover")).to_contain_text("block 0 · A · generation")


def test_the_picture_is_saved_with_its_legend(ran, tmp_path):
    saved = {}
    for kind in ("png", "svg"):
        with ran.expect_download() as download:
            ran.click(f"#mask [data-do={kind}]")
        saved[kind] = tmp_path / f"mask.{kind}"
        download.value.save_as(saved[kind])
    assert saved["png"].read_bytes().startswith(b"\x89PNG")
    svg = saved["svg"].read_text("utf-8")
    told = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert {"A", "B", "C", "D"} <= set(told)
    assert "Attention mask: 4 segments" in told[-1]
    assert svg.count("<polygon") >= 8


def test_switching_the_language_keeps_the_run_and_the_fields(ran):
    text, question = answer(ran, "A"), ran.locator("#question-A textarea").input_value()
    ran.locator("#language label", has_text="中文").click()
    expect(ran.locator("#answer-A .meta")).to_contain_text("词元")
    assert answer(ran, "A") == text
    expect(ran.locator("#question-A textarea")).to_have_value(question)
    expect(ran.locator("#mask .title")).to_have_text(say(ZH, "mask.title"))
    expect(ran.locator("#kv tbody tr").last).to_contain_text(say(ZH, "kv.nobody"))
    expect(ran.locator("#run")).to_have_text(say(ZH, "run"))
    ran.locator("#language label", has_text="EN").click()
    expect(ran.locator("#answer-A .meta")).to_contain_text("token")
    expect(ran.locator("#run")).to_have_text(say(EN, "run"))
    assert ran.evaluate("[0, 1, 2].map((count) => kev.say('threads', { count }))") == [
        "0 threads", "1 thread", "2 threads"]


def test_hostile_names_stay_text_in_the_saved_picture(page, tmp_path):
    view = view_of([4, 3], [None, 0], [0, 0])
    infos = (replace(view.plan.segments[0], name="</text><script>alert(1)</script>"), view.plan.segments[1])
    texts = json.dumps(["<b>\x7f${1}\x7f\"\x7f'", "a\x7fb\x7fc"])
    show(page, replace(view, plan=replace(view.plan, segments=infos)), texts)
    with page.expect_download() as download:
        page.click("#mask [data-do=svg]")
    download.value.save_as(tmp_path / "mask.svg")
    svg = (tmp_path / "mask.svg").read_text("utf-8")
    assert "<script" not in svg
    assert "&lt;script" in svg
