"""The real page on the real embedded model, in Chromium. Every request, console error and page error is recorded."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, expect, sync_playwright

from app import build_app, page_options
from kev_engine import Engine, EngineConfig

ROOT = Path(__file__).parents[2]
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
              "--disable-component-update", "--disable-sync")


# A prompt may wait for its turn on a busy machine; a passing test never waits that long.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def engine(embedded_home: Path) -> Iterator[Engine]:
    adapters = {path.parent.name: str(path.parent) for path in ROOT.glob("assets/adapters/*/adapter_config.json")}
    config = EngineConfig(kv_budget_bytes=2**28, home=embedded_home, adapters=adapters)
    with Engine(config) as engine:
        yield engine


@pytest.fixture(scope="session")
def url(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    demo = build_app(engine, history_folder=tmp_path_factory.mktemp("history"))
    _, address, _ = demo.launch(server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True,
                                **page_options())
    yield address
    demo.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = _chromium(playwright)
        yield browser
        browser.close()


def _chromium(playwright: Playwright) -> Browser:
    """The installed Chromium, else Playwright's own; without either a skip, or a failure where one is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        return playwright.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
    except Error as error:
        reason = f"no Chromium to drive: {error.message.splitlines()[0]}"
        if os.environ.get("KEV_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@dataclass
class Visit:
    """One tab and what it did beside being looked at."""

    page: Page
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def opened(cls, page: Page, url: str, width: int = 1280, height: int = 820) -> Visit:
        """The page, open and drawn; from here on its errors and its requests of other machines are noted."""
        seen = cls(page)
        page.set_viewport_size({"width": width, "height": height})
        page.on("request", lambda request: seen.note(request.url, url))
        page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.goto(url)
        page.wait_for_selector("#mask canvas[data-version]")
        return seen

    def note(self, request: str, url: str) -> None:
        if not request.startswith((url, "data:", "blob:")):
            self.outside.append(request)

    def check(self) -> None:
        """No tab may have an error or have asked anything of another machine."""
        assert self.errors == []
        assert self.outside == []


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """One context for each kind of visitor, so that Gradio's scripts are fetched and compiled once and not every test.

    A tab finds no trace of the tabs before it; what it keeps itself outlives its own reloads.
    """
    known: dict[tuple[str, str, bool], BrowserContext] = {}

    def context_of(locale: str, scheme: str, has_touch: bool) -> BrowserContext:
        key = locale, scheme, has_touch
        if key not in known:
            known[key] = browser.new_context(locale=locale, color_scheme=scheme, has_touch=has_touch)
            known[key].set_default_timeout(60_000)
            known[key].add_init_script(
                "if (window === top && !sessionStorage.opened) { localStorage.clear(); sessionStorage.opened = 1; }")
        return known[key]

    yield context_of
    for context in known.values():
        context.close()


@pytest.fixture
def visit(contexts: Callable[..., BrowserContext], url: str) -> Iterator[Callable[..., Visit]]:
    """Opens a tab of its own, in any language and width, where the first sight of the page is what is tested."""
    visits: list[Visit] = []

    def open_tab(width: int = 1280, height: int = 820, locale: str = "en-US", scheme: str = "light") -> Visit:
        visits.append(Visit.opened(contexts(locale, scheme, width < 500).new_page(), url, width, height))
        return visits[-1]

    yield open_tab
    for seen in visits:
        seen.page.close()
        seen.check()


@pytest.fixture(scope="module")
def tab(contexts: Callable[..., BrowserContext], url: str) -> Iterator[Visit]:
    """The tab that the tests of a file share: opening one costs more than most of them."""
    seen = Visit.opened(contexts("en-US", "light", False).new_page(), url)
    yield seen
    seen.page.close()


@pytest.fixture
def page(tab: Visit) -> Iterator[Page]:
    """The file's tab as it is found at first: English, light, wide, the first preset in its cards and nothing run."""
    page = tab.page
    page.get_by_role("tab").first.click()
    if page.locator("#stop").is_enabled():  # a test before failed in the middle of its run
        page.click("#stop")
        expect(page.locator("#run")).to_be_enabled()
    if page.evaluate("document.documentElement.lang") != "en":
        page.locator("#language label", has_text="EN").click()
    page.evaluate("for (const part of document.querySelectorAll('details[open]')) part.open = false")
    # By way of another preset, so that what stands there afterwards is the server's answer and not what stood before.
    for preset, question in (("lengths", "What is the capital of France?"),
                             ("secrets", "What is the password of the harbour office?")):
        page.click(f"#preset-{preset}")
        expect(page.locator("#question-A textarea")).to_have_value(question)
    expect(page.locator(".card")).to_have_count(4)
    expect(page.locator(".answer .text, #summary .meta, #note .mistake, #refusal .mistake")).to_have_count(0)
    expect(page.locator("#mask canvas")).to_have_attribute("data-tokens", "0")
    expect(page.locator("#run")).to_be_enabled()
    yield page
    tab.check()
