"""The run tab as a person uses it: real page, real model."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest
from playwright.sync_api import Page, expect

from app import board
from app.board import Board
from app.i18n import CATALOGUE, EN, ZH, say
from kev_engine import Question, Step

pytestmark = [
    pytest.mark.browser,
    # Gradio calls pandas in ways that pandas now deprecates.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

HOSTILE = "${document.title='owned'} `${1+1}` <img src=x onerror=\"document.title='owned'\"> {{value}} </textarea>"


def fill(page: Page, letter: str, **fields: str) -> None:
    for name, text in fields.items():
        page.locator(f"#{name}-{letter} :is(textarea, input)").first.fill(text)


def keep_two_cards(page: Page) -> None:
    for letter in "CD":
        page.click(f"#remove-{letter}")
        expect(page.locator(f"#card-{letter}")).to_have_count(0)


def upload(page: Page, button: str, name: str, content: str | bytes) -> None:
    with page.expect_file_chooser() as chosen:
        page.click(button)
    data = content if isinstance(content, bytes) else content.encode()
    chosen.value.set_files([{"name": name, "mimeType": "text/plain", "buffer": data}])


def hover(page: Page, canvas: str, row: float, key: float) -> str:
    """What the line under the mask says when the pointer is there, in shares of its sides."""
    box = page.locator(canvas).bounding_box()
    page.mouse.move(box["x"] + box["width"] * key, box["y"] + box["height"] * row)
    return page.locator("#mask .hover").inner_text()


def answer(page: Page, letter: str) -> str:
    return page.locator(f"#answer-{letter} .text").inner_text()


def wait_until_done(page: Page) -> None:
    """Until the run that was started has its summary, which it loses when another starts."""
    expect(page.locator("#summary .meta")).to_be_visible(timeout=120_000)
    expect(page.locator("#run")).to_be_enabled(timeout=60_000)


def version(page: Page, canvas: str) -> int:
    return int(page.locator(f"{canvas} canvas").get_attribute("data-version") or 0)


def pixels(page: Page, canvas: str) -> str:
    return page.locator(f"{canvas} canvas").evaluate("element => element.toDataURL()")


def test_two_cards_with_different_adapters_run_stop_and_audit(page, engine):
    keep_two_cards(page)
    names = ["", *engine.adapters.names()][:2]
    for letter, name in zip("AB", names, strict=False):
        fill(page, letter, question="Tell me a long story about a lighthouse.", context="", temperature="0",
             max_new_tokens="200")
        if name:
            page.select_option(f"#adapter-{letter} select", name)
    blank_mask, blank_kv = pixels(page, "#mask"), pixels(page, "#kv")
    before = version(page, "#mask")
    page.click("#run")
    expect(page.locator("#answer-A .text")).to_be_visible()
    first, first_version = answer(page, "A"), version(page, "#mask")
    page.wait_for_function("before => document.querySelector('#answer-A .text').innerText.length > before + 8",
                           arg=len(first))
    assert answer(page, "A").startswith(first.rstrip())
    assert version(page, "#mask") > first_version > before
    assert pixels(page, "#mask") != blank_mask
    assert pixels(page, "#kv") != blank_kv
    assert page.locator("#kv .parts div").count() == 2
    page.click("#stop")
    wait_until_done(page)
    for letter in "AB":
        expect(page.locator(f"#answer-{letter} .meta")).to_contain_text(say(EN, "status.cancelled"))
        expect(page.locator(f"#answer-{letter} .meta")).to_contain_text("TTFT")
    if len(names) == 2:
        assert answer(page, "A") != answer(page, "B")
    stopped = answer(page, "A")
    for letter in "AB":
        fill(page, letter, max_new_tokens="2")
    page.click("#audit")
    expect(page.locator("#verdict .ok")).to_contain_text(say(EN, "verdict.isolated"), timeout=60_000)
    expect(page.locator("#verdict .proofs tbody tr")).to_have_count(2)
    expect(page.locator("#verdict p")).to_contain_text("0 of ")
    assert answer(page, "A") == stopped


def test_a_long_prompt_tells_how_far_its_one_forward_is_and_stops_behind_it(page):
    keep_two_cards(page)
    fill(page, "A", question="What is said?", context="The ferry sails at noon. " * 250, max_new_tokens="9")
    page.click("#run")
    page.wait_for_function("""() => {
        const meta = document.querySelector('#answer-A .meta')?.innerText;
        const [, done, all] = meta?.match(/layer (\\d+) of (\\d+)/) || [];
        return Number(done) > 1 && Number(done) < Number(all);
    }""")
    page.keyboard.press("Escape")
    expect(page.locator("#stop")).to_have_text(say(EN, "stopping"))
    expect(page.locator("#stop")).to_be_disabled()
    wait_until_done(page)
    expect(page.locator("#stop")).to_have_text(say(EN, "stop"))
    expect(page.locator("#answer-A .meta")).to_contain_text(say(EN, "status.cancelled"))
    expect(page.locator("#answer-A .meta")).not_to_contain_text("layer")


def test_ctrl_enter_runs_and_escape_stops(page):
    fill(page, "A", question="Count as far as you can.", max_new_tokens="200")
    page.locator("#question-A textarea").press("Control+Enter")
    expect(page.locator("#answer-A .text")).to_be_visible()
    page.keyboard.press("Escape")
    wait_until_done(page)
    expect(page.locator("#answer-A .meta")).to_contain_text(say(EN, "status.cancelled"))


def test_a_mistake_stands_at_its_card_and_the_others_run(page):
    fill(page, "A", temperature="hot", max_new_tokens="4")
    fill(page, "B", question=" ", max_new_tokens="4")
    fill(page, "C", max_new_tokens="4")
    page.click("#run")
    expect(page.locator("#answer-A .mistake")).to_contain_text("Temperature is 'hot'")
    expect(page.locator("#answer-B .mistake")).to_contain_text("The question is empty")
    expect(page.locator("#answer-C .text")).to_be_visible()
    wait_until_done(page)
    assert page.locator("#temperature-A input").input_value() == "hot"
    assert page.locator("#answer-C .mistake").count() == 0


def test_hostile_text_is_text_everywhere(page):
    keep_two_cards(page)
    title = page.title()
    fill(page, "A", question=HOSTILE, context=HOSTILE, max_new_tokens="3", temperature="0")
    fill(page, "B", question="Repeat exactly: " + HOSTILE, temperature=HOSTILE)
    fill(page, "A", seed="7")
    page.click("#run")
    expect(page.locator("#answer-B .mistake")).to_contain_text("${document.title")
    wait_until_done(page)
    box = page.locator("#mask canvas").bounding_box()
    for share in (0.2, 0.5, 0.9):
        page.mouse.move(box["x"] + box["width"] * share / 2, box["y"] + box["height"] * share)
        page.mouse.down()
        page.mouse.up()
        expect(page.locator("#cell")).to_contain_text("query")
    assert page.title() == title
    assert page.locator(".gradio-container img[src='x']").count() == 0


def test_two_tabs_at_once_keep_to_themselves(page, visit):
    one, two = page, visit().page
    for page, word in ((one, "lighthouse"), (two, "orchard")):
        keep_two_cards(page)
        fill(page, "A", question=f"Repeat the word {word}.", context="", temperature="0", max_new_tokens="8")
        fill(page, "B", question=f"What is a {word}?", context="", temperature="0", max_new_tokens="8")
    one.click("#run")
    two.click("#run")
    for page, mine, other in ((one, "lighthouse", "orchard"), (two, "orchard", "lighthouse")):
        wait_until_done(page)
        both = answer(page, "A") + answer(page, "B")
        assert mine in both.lower()
        assert other not in both.lower()
        assert page.locator("#mask canvas").get_attribute("aria-label").startswith("Attention mask: 2 segments")


def test_cards_are_added_duplicated_moved_folded_cleared_and_removed(page):
    fill(page, "A", question="Who is there?", seed="11")
    page.click("#duplicate-A")
    expect(page.locator("#card-E")).to_be_visible()
    expect(page.locator("#question-E textarea")).to_have_value("Who is there?")
    expect(page.locator("#seed-E input")).to_have_value("11")
    page.click("#letter-A")
    expect(page.locator("#question-A textarea")).to_be_hidden()
    expect(page.locator("#card-A .excerpt")).to_have_text("Who is there?")
    page.click("#letter-A")
    page.click("#menu-A summary")
    page.click("#menu-A .clear")
    expect(page.locator("#question-A textarea")).to_have_value("")
    page.click(".tools-line .undo")
    expect(page.locator("#question-A textarea")).to_have_value("Who is there?")
    page.evaluate("for (let turn = 0; turn < 27; turn++) document.querySelector('#add').click()")
    expect(page.locator(".card")).to_have_count(32)
    expect(page.locator("#question-AF textarea")).to_have_value("")
    expect(page.locator("#add")).to_be_disabled()
    page.click("#duplicate-A")
    expect(page.locator("#board .told")).to_contain_text("32 cards")
    page.click("#remove-B")
    expect(page.locator("#card-B")).to_have_count(0)
    expect(page.locator("#question-C textarea")).not_to_have_value("")
    page.locator("#letter-AF").press("Alt+ArrowUp")
    assert page.locator(".card .letter").all_inner_texts()[-2:] == ["AF", "AE"]
    page.click(".tools-line .clear-all")
    expect(page.locator(".card")).to_have_count(1)
    page.click(".tools-line .undo")
    expect(page.locator(".card")).to_have_count(31)


def test_a_card_is_dragged_by_its_head_and_goes_back_where_it_is_let_go_elsewhere(page):
    def order() -> list[str]:
        return page.locator(".card .letter").all_inner_texts()

    def drag(letter: str, x: float, y: float) -> list[str]:
        """The order while the card hangs there, before it is let go."""
        head = page.locator(f"#card-{letter} .head").bounding_box()
        page.mouse.move(head["x"] + 200, head["y"] + 10)
        page.mouse.down()
        for shift in (3, 2, 1, 0):  # as long as it hangs there, the browser says so again and again
            page.mouse.move(x, y + shift)
            page.wait_for_timeout(60)
        hanging = order()
        page.mouse.up()
        return hanging

    page.evaluate("scrollTo(0, 0)")
    page.click("#letter-A")  # folded, it is lower than the card it is drawn over
    low = page.locator("#card-B").bounding_box()
    assert drag("A", low["x"] + 200, low["y"] + 0.7 * low["height"]) == ["B", "A", "C", "D"]
    gap = page.locator("#card-C").bounding_box()["y"] - 6
    assert drag("B", low["x"] + 200, gap) == ["A", "B", "C", "D"] == order()
    assert drag("A", low["x"] + 200, gap) == ["B", "A", "C", "D"] == order()
    beside = page.locator("#mask").bounding_box()
    drag("C", beside["x"] + 50, beside["y"] + 50)
    assert order() == ["B", "A", "C", "D"]
    page.click("#letter-A")
    assert order() == ["B", "A", "C", "D"], "what is seen is not what the cards hold"


@pytest.mark.parametrize("action", ["run", "audit"])
@pytest.mark.parametrize("is_first", [True, False])
def test_nothing_comes_to_stand_under_other_cards(page, action, is_first):
    """Both are pressed before the server has answered either. It may take them in any order, but what it took second is
    refused: either the new cards stand there with nothing beside them, or the old ones with what was asked for."""
    pressed = [action, "preset-shared"] if is_first else ["preset-shared", action]
    page.evaluate(f"for (const id of {json.dumps(pressed)}) document.getElementById(id).click()")
    page.wait_for_function("document.querySelector('#shared-card-0') || document.querySelector('#refusal .mistake')")
    is_replaced = page.locator("#shared-card-0").count() == 1
    if not is_replaced and "replaced just before" in page.locator("#refusal .mistake").inner_text():
        page.wait_for_selector("#shared-card-0")  # the refusal came before the cards
        is_replaced = True
    page.wait_for_timeout(1500)
    assert page.locator("#shared-card-0").count() == int(is_replaced)
    page.evaluate("document.getElementById('stop').click()")
    expect(page.locator("#run")).to_be_enabled(timeout=60_000)
    if is_replaced:
        assert page.locator(".answer .text").count() == 0
        assert page.locator("#verdict .proofs").count() == 0


def test_a_refusal_stays_whatever_was_pressed_before_it_and_goes_with_what_is_pressed_next(page, monkeypatch):
    """The server has taken the cards' place, and the browser has not heard of it when Run is refused."""
    to_json = board.to_json

    def slow(cards: Board, filling: int = 0) -> str:
        page_hears_late.set()
        time.sleep(2)
        return to_json(cards, filling)

    page_hears_late = threading.Event()
    monkeypatch.setattr(board, "to_json", slow)
    page.click("#preset-shared")
    assert page_hears_late.wait(30)
    page.click("#run")
    refusal = page.locator("#refusal .mistake")
    expect(refusal).to_have_text(say(EN, "error.cards_replaced"))
    expect(page.locator("#shared-card-0")).to_have_count(0)
    page.wait_for_selector("#shared-card-0")
    expect(page.locator("#note")).to_have_text(say(EN, "preset.shared.note"))
    expect(refusal).to_have_text(say(EN, "error.cards_replaced"))
    monkeypatch.undo()
    page.click("#preset-voices")
    expect(page.locator("#note")).to_have_text(say(EN, "preset.voices.note"))
    expect(refusal).to_have_count(0)


def test_thirty_two_questions_answer_in_one_run(page):
    upload(page, ".tools-line .import", "many.csv", "question,max_new_tokens\n" + "Hello,1\n" * 32)
    expect(page.locator(".card")).to_have_count(32)
    page.click("#run")
    wait_until_done(page)
    assert page.locator(".answer .text").count() == 32
    assert page.locator("#mask canvas").get_attribute("aria-label").startswith("Attention mask: 32 segments")


def test_a_file_is_imported_and_its_wrong_row_named(page):
    rows = ('{"question": "Who is there?", "seed": 4}\n{"question": "Where?", "temperature": "hot"}\n'
            '{"question": "Why?"}')
    upload(page, ".tools-line .import", "some.jsonl", rows)
    expect(page.locator("#note .mistake")).to_contain_text("line 2: Temperature is 'hot'")
    expect(page.locator("#question-B textarea")).to_have_value("Why?")
    expect(page.locator("#seed-A input")).to_have_value("4")
    page.click(".tools-line .undo")
    expect(page.locator(".card")).to_have_count(4)


def test_a_file_is_attached_as_a_context(page):
    page.click("#menu-A summary")
    upload(page, "#menu-A .attach", "notes.md", "# Notes\nThe ferry sails at noon. 渡船中午开。")
    expect(page.locator("#context-A textarea")).to_have_value("The harbour office has a password. The password is "
                                                              "BLUE LANTERN.\n\n# Notes\nThe ferry sails at noon. "
                                                              "渡船中午开。")
    page.click("#menu-A summary")
    upload(page, "#menu-A .attach", "notes.txt", "渡船".encode("gb18030"))
    expect(page.locator("#board .told")).to_contain_text("not UTF-8")


def test_several_questions_read_a_shared_context(page):
    page.click("#preset-shared")
    expect(page.locator("#shared-card-0 .readers")).to_have_text("read by A B C")
    page.select_option("#shared-C select", "")
    expect(page.locator("#shared-card-0 .readers")).to_have_text("read by A B")
    page.locator("#shared-card-0 .name").fill("clauses")
    page.locator("#shared-card-0 .name").press("Tab")
    assert page.locator("#shared-B select").input_value() == "clauses"
    for letter in "ABC":
        fill(page, letter, max_new_tokens="2")
    page.click("#run")
    wait_until_done(page)
    assert page.locator("#mask canvas").get_attribute("aria-label").startswith("Attention mask: 4 segments")
    told = hover(page, "#mask canvas", 0.7, 0.1)
    assert "(clauses)" in told
    assert " reads key" in told


def test_run_alone_and_again_with_the_same_seed(page):
    keep_two_cards(page)
    for letter in "AB":
        fill(page, letter, question="Tell me something.", context="", temperature="1.2", max_new_tokens="4")
    page.click("#run")
    wait_until_done(page)
    first, other = answer(page, "A"), answer(page, "B")
    page.click("#menu-A summary")
    page.click("#menu-A .again")
    expect(page.locator("#answer-B .meta")).to_contain_text(say(EN, "answer.earlier"))
    wait_until_done(page)
    assert (answer(page, "A"), answer(page, "B")) == (first, other)
    expect(page.locator("#kv .device")).to_contain_text(re.compile(r"1 prefix hit, [1-9]\d* tokens reused"))
    page.click("#alone-B")
    expect(page.locator("#answer-A .meta")).to_contain_text(say(EN, "answer.earlier"))
    wait_until_done(page)
    assert page.locator("#mask canvas").get_attribute("aria-label").startswith("Attention mask: 1 segment,")


def test_every_field_of_a_card_reaches_the_engine(page, engine):
    keep_two_cards(page)
    page.click("#more-A summary")
    fill(page, "A", question="Is the sea wet?", context="", choices="certainly\nnever", n="2", top_k="5", seed="3",
         temperature="0.9")
    page.select_option("#order-A select", index=1)
    expect(page.locator("#more-A summary")).to_contain_text("4 set")
    page.click("#alone-A")
    wait_until_done(page)
    texts = page.locator("#answer-A .samples .text").all_inner_texts()
    assert len(texts) == 2
    assert set(texts) <= {"certainly", "never"}
    expect(page.locator("#answer-A .tuple").first).to_contain_text(
        "T 0.9 · top-k 5 · seed 3 · max 24 · ")
    expect(page.locator("#answer-A .tuple").first).to_contain_text("T → top-k → top-p → min-p → penalties")
    page.click("#duplicate-A")
    page.click("#more-C summary")
    expect(page.locator("#choices-C textarea")).to_have_value("certainly\nnever")


def test_answers_are_seen_token_by_token_and_side_by_side_and_are_copied(page):
    keep_two_cards(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for letter, thing in (("A", "colour"), ("B", "fruit")):
        fill(page, letter, question=f"Name one {thing}.", context="", temperature="0", max_new_tokens="4")
    page.click("#run")
    wait_until_done(page)
    text = answer(page, "A")
    page.click("#answer-A .meta button")
    expect(page.locator("#answer-A .meta button")).to_have_text(say(EN, "copied"))
    assert page.evaluate("navigator.clipboard.readText()").strip() == text.strip()
    page.click(".views .as_tokens")
    page.locator("#answer-A .token").first.hover()
    expect(page.locator("#answer-A .others tr")).to_have_count(5)
    expect(page.locator("#answer-A .others .drawn")).to_have_count(1)
    page.click(".views .as_columns")
    expect(page.locator(".one-beside")).to_have_count(2)
    assert page.locator(".one-beside mark").count() > 0
    shown = page.locator(".one-beside:not(.reference) .text").inner_text()
    page.locator(".only input").check()
    page.locator(".one-beside[data-name=B] .letter").click()
    expect(page.locator(".one-beside[data-name=B] .text")).to_have_text(shown)
    page.locator(".only input").uncheck()
    page.click(".views .as_text")
    expect(page.locator("#question-A textarea")).to_be_visible()


def test_a_sweep_shows_its_plot_its_figures_and_its_samples(page):
    fill(page, "A", question="Name one colour.", context="", max_new_tokens="2")
    page.click("#more-A summary")
    fill(page, "A", expected="blue")
    page.click("#menu-A summary")
    page.click("#menu-A .sweep")
    wait_until_done(page)
    expect(page.locator("#answer-A .sweep polyline")).to_have_count(3)
    rows = page.locator("#answer-A .figures tbody tr")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["0.1", "0.3", "0.5", "0.7", "0.9"]
    groups = page.locator("#answer-A .group summary").all_inner_texts()
    assert len(groups) == 5
    assert all("4 samples" in group for group in groups)
    expect(page.locator("#answer-A > div > .meta").first).to_contain_text("nee")


def test_what_the_server_tells_later_leaves_alone_what_a_person_has_open(page, engine):
    """The cards learn of adapters and the default temperature whenever the tab is looked at: fields must not be made
    anew, or a click between its down and its up is lost, and what was open is shut."""
    page.click("#more-A summary")
    before = engine.temperature.current()
    page.evaluate("window.fields = [...document.querySelectorAll('.card :is(input, textarea, select, summary)')]")
    try:
        default = page.locator("#temperature-default :is(input, textarea)")
        default.fill("0.75")
        default.press("Enter")
        expect(page.locator("#masthead")).to_contain_text(
            say(EN, "temperature_default", value="0.75", version=before.version + 1))
        page.get_by_role("tab", name=say(EN, "tab.memory")).click()
        page.get_by_role("tab", name=say(EN, "tab.run")).click()
        page.fill("#temperature-A input", "")
        expect(page.locator("#temperature-A input")).to_have_attribute("placeholder", "0.75")
    finally:
        engine.temperature.set(before.value)
    assert page.evaluate("window.fields.every((field) => field.isConnected)")
    expect(page.locator("#choices-A")).to_be_visible()


def test_chinese_is_complete_and_language_and_theme_are_kept(visit):
    page = visit(locale="zh-CN").page
    expect(page.locator("#run")).to_have_text(say(ZH, "run"))
    expect(page.locator("#masthead")).to_contain_text(say(ZH, "title"))
    english = {pair[0] for key, pair in CATALOGUE.items() if pair[0] != pair[1] and len(pair[0]) > 3}
    shown = page.locator("button, label, .hint, .line span, [data-testid=block-info]").all_inner_texts()
    assert [text for text in shown if text.strip() in english] == []
    page.locator("#language label", has_text="EN").click()
    expect(page.locator("#run")).to_have_text(say(EN, "run"))
    light, before = page.evaluate("getComputedStyle(document.body).backgroundColor"), pixels(page, "#kv")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.wait_for_function("before => document.querySelector('#kv canvas').toDataURL() !== before", arg=before)
    page.reload()
    expect(page.locator("#run")).to_have_text(say(EN, "run"))
    page.wait_for_selector("#mask canvas[data-version]")
    assert page.evaluate("document.body.classList.contains('dark')")


def test_a_tab_that_is_closed_stops_its_run(visit, engine):
    seen = visit()
    fill(seen.page, "A", question="Count as far as you can.", max_new_tokens="2000")
    seen.page.click("#run")
    expect(seen.page.locator("#answer-A .text")).to_be_visible()
    seen.page.close()
    for _ in range(40):
        step = next(event for event in engine.stream([Question("Z", "Hello", max_new_tokens=2)])
                    if isinstance(event, Step))
        if step.kv.bytes_others == 0:
            return
        time.sleep(0.25)
    pytest.fail(f"the closed tab still holds memory: {json.dumps(step.kv.bytes_others)}")
