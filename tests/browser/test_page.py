"""The page as a whole: accessible by axe-core's rules, no wider than the screen, its first minute, its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from app.board import CardValues, board
from app.i18n import EN, ZH, say
from tests.app.test_history import run_record
from tests.browser.test_history_tab import bring
from tests.browser.test_run_tab import HOSTILE, fill, wait_until_done

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]

TABS = ("run", "doctor", "memory", "adapters", "history")
GRADIO = ("#tabs .overflow-menu", "#outbox")
"""Parts of Gradio that are hidden from everybody."""
PRESSED = {"run": {"#run": "#answer-A .mistake", "#model-load": "#model-told .mistake"},
           "doctor": {"#doctor-examine": "#doctor-verdict .mistake", "#doctor-describe": "#doctor-verdict .mistake"},
           "memory": {"#plan": "#plan-figures .mistake"},
           "adapters": {"#adapters-add": "#adapters-told .mistake", "#compare": "#voices .mistake"},
           "history": {}}
"""What takes the fields of a tab, and where it is said what is wrong with them."""


def every_tab(page: Page) -> Iterator[str]:
    for index, tab in enumerate(TABS):
        page.get_by_role("tab").nth(index).click()
        page.wait_for_timeout(200)
        yield tab


def findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical, contrast of AA included, in both palettes; the page ends in its own."""
    serious = []
    # In the other palette nothing but the colours is another.
    for rules in ({}, {"runOnly": ["color-contrast"]}):
        options = {"resultTypes": ["violations"], **rules}
        found = Axe().run(page, {"exclude": [[selector] for selector in GRADIO]}, options).response["violations"]
        serious += [f"{one['id']}: {node['target']} {node.get('failureSummary', '')[:160]}" for one in found
                    if one["impact"] in ("serious", "critical") for node in one["nodes"]]
        page.evaluate("kev.toggleTheme()")
    return serious


def test_no_tab_has_a_serious_finding_in_light_or_dark(page):
    page.add_style_tag(content="* { transition: none !important }")  # a colour on its way is no colour of the page
    serious = [one for _ in every_tab(page) for one in findings(page)]
    page.get_by_role("tab", name=say(EN, "tab.run")).click()
    for letter in "ABCD":
        fill(page, letter, max_new_tokens="2")
    page.click("#run")
    wait_until_done(page)
    page.click("#explain summary")
    page.click("#masthead button.chip")
    page.click("#more-A summary")
    page.click(".views .as_tokens")
    page.wait_for_selector("#answer-A .token")
    serious += findings(page)
    page.click(".views .as_columns")
    page.click("#help")
    serious += findings(page)
    page.keyboard.press("Escape")
    page.click(".views .as_text")
    page.click("#masthead button.chip")
    assert not serious, "\n".join(sorted(set(serious)))


TYPED = "input:is([type=text], [type=number], [type=search], :not([type])), textarea"


def type_everywhere(page: Page, text: str) -> int:
    """Into every field that is seen and takes it; how many those were."""
    count = 0
    for field in page.locator(TYPED).all():
        if field.is_visible() and field.is_editable():
            field.fill("1" if field.get_attribute("type") == "number" else text)
            count += 1
    return count


def test_hostile_text_in_any_field_of_any_tab_stays_text(visit):
    """Also when it is said again in the other language."""
    page = visit().page
    title, counts = page.title(), {}
    page.click(".tools-line .add-shared")
    page.click("#masthead button.chip")
    page.fill("#temperature-default :is(input, textarea)", HOSTILE)
    page.keyboard.press("Enter")
    expect(page.locator("#masthead .mistake")).to_be_visible()
    for summary in page.locator(".more summary").all():
        summary.click()
    for tab in every_tab(page):
        if tab == "doctor":
            page.click("#doctor-text button")
        counts[tab] = type_everywhere(page, HOSTILE)
        for button, told in PRESSED[tab].items():
            page.click(button)
            expect(page.locator(told).first).to_be_visible(timeout=20_000)
    assert all(count > 2 for count in counts.values()), counts
    page.get_by_role("tab").first.click()
    page.locator("#language label", has_text="中文").click()
    for _ in every_tab(page):
        assert page.locator("img[src='x']").count() == 0
    assert page.title() == say(ZH, "title") != title


LONG = "word" * 80


def run_and_open_all(page: Page) -> None:
    """The run tab with answers, and everything unfolded that a run leaves; no part of it is wider than the screen."""
    for letter in "ABCD":
        fill(page, letter, max_new_tokens="2")
    fill(page, "A", question=LONG)
    page.click("#run")
    wait_until_done(page)
    page.wait_for_selector("#explain summary")
    page.evaluate("for (const part of document.querySelectorAll('#run-tab details:not(.menu)')) part.open = true")
    width = page.viewport_size["width"]
    for view in ("as_tokens", "as_columns", "as_text"):
        page.click(f".views .{view}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


@pytest.mark.parametrize(("width", "locale", "scheme"), [(390, "en-US", "light"), (1280, "zh-CN", "dark")])
def test_no_tab_is_wider_than_the_screen(visit, tmp_path: Path, width, locale, scheme):
    """On a phone and on a desk, in both languages and both palettes, with something in every tab."""
    page = visit(width=width, height=844, locale=locale, scheme=scheme).page
    run = page.locator("#run").bounding_box()
    assert run["y"] + run["height"] < 844
    other = "中文" if locale == "en-US" else "EN"
    language = ZH if locale == "en-US" else EN
    for tab in every_tab(page):
        if tab == "run":
            run_and_open_all(page)
        if tab == "doctor":
            page.click("#doctor-examples input")
            page.get_by_role("option").nth(1).click()
            expect(page.locator("#doctor-findings [data-verdict]")).to_be_visible()
        if tab == "memory":
            page.click("#memory-example-window")
            expect(page.locator("#plan-figure .main-svg").first).to_be_visible()
        if tab == "history":
            record = run_record(LONG, board=board((CardValues(LONG),)))
            bring(page, tmp_path / "a.json", record.to_json())
            expect(page.locator("#history-detail .question")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
    page.locator("#language label", has_text=other).click()
    page.evaluate("kev.toggleTheme()")
    expect(page.locator("#history-keep")).to_contain_text(say(language, "history.keep"))
    for tab in every_tab(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, tab


def test_a_language_is_kept_the_moment_it_is_chosen(visit):
    """Also by somebody who loads the page again at once."""
    page = visit().page
    page.locator("#language label", has_text="中文").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", ZH)
    expect(page.locator("#run")).to_contain_text(say(ZH, "run"))


def test_the_first_minute_and_the_keys(visit):
    page = visit().page
    step = page.locator("#tour p")
    expect(step).to_contain_text(say(EN, "tour.cards"))
    page.locator("#language label", has_text="中文").click()
    expect(step).to_contain_text(say(ZH, "tour.cards"))
    page.locator("#language label", has_text="EN").click()
    for name in ("run", "mask", "memory", "audit"):
        page.click("#tour .next")
        expect(step).to_contain_text(say(EN, f"tour.{name}"))
        expect(page.locator(".toured")).to_have_count(1)
    page.click("#tour .end")
    expect(page.locator("#tour section")).to_have_count(0)
    expect(page.locator(".toured")).to_have_count(0)
    page.locator("#question-A textarea").press("?")
    expect(page.locator("#keys")).to_have_count(0)
    page.locator("#mask canvas").press("?")
    expect(page.locator("#keys dd")).to_have_count(9)
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_have_count(0)
    page.reload()
    page.wait_for_selector("#mask canvas[data-version]")
    expect(page.locator("#tour section")).to_have_count(0)
