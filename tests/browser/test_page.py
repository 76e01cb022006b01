"""The page as a whole: accessible by axe-core's rules, its first minute, its keys, its model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from app.i18n import EN, ZH, say
from tests.browser.test_run_tab import fill, wait_until_done

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]

TABS = ("run", "doctor", "memory", "adapters", "history")
GRADIO = ("#tabs .overflow-menu", "#outbox")
"""Parts of Gradio that are hidden from everybody."""


def findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical, contrast of AA included."""
    found = Axe().run(page, {"exclude": [[selector] for selector in GRADIO]}).response["violations"]
    return [f"{one['id']}: {node['target']} {node.get('failureSummary', '')[:160]}" for one in found
            if one["impact"] in ("serious", "critical") for node in one["nodes"]]


def every_tab(page: Page, look: Callable[[], None]) -> None:
    for tab in TABS:
        page.get_by_role("tab", name=say(EN, f"tab.{tab}")).click()
        page.wait_for_timeout(250)
        look()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_tab_has_a_serious_finding(visit, scheme):
    page = visit(scheme=scheme).page
    serious = []
    every_tab(page, lambda: serious.extend(findings(page)))
    page.get_by_role("tab", name=say(EN, "tab.run")).click()
    fill(page, "A", max_new_tokens="4")
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
    assert not serious, "\n".join(sorted(set(serious)))


def test_the_first_minute_the_keys_and_a_model_that_is_none(visit):
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
    page.click("#masthead button.chip")
    page.fill("#model-spec input", "no/such/model")
    page.keyboard.press("Enter")
    expect(page.locator("#model-told .mistake")).to_contain_text("there is no model")
    expect(page.locator("#model-load")).to_be_enabled()
    page.reload()
    page.wait_for_selector("#mask canvas[data-version]")
    expect(page.locator("#tour section")).to_have_count(0)
