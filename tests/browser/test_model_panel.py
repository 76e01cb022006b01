"""Choosing a model in the page: a hub's model on its way, cancelled, and taken. A server of its own, on tiny models."""

from __future__ import annotations

import os
import threading

import pytest
from playwright.sync_api import expect

from app import build_app, page_options
from app.i18n import EN, ZH, say
from app.live_engine import LiveEngine
from kev_engine import Engine, EngineConfig
from kev_engine.config import cache_home
from tests.browser.conftest import Visit, free_port
from tests.browser.test_run_tab import fill, wait_until_done
from tests.models.hub_server import local_hub, use_hub
from tests.models.tiny import tiny_folder

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with local_hub({"owner/tiny": tiny_folder(tmp_path / "other", "qwen2")}) as hub:
        use_hub(monkeypatch, hub, tmp_path / "hub")
        yield hub


@pytest.fixture
def tiny_url(tmp_path):
    home = cache_home(os.environ)  # holds the compiled kernels
    config = EngineConfig(model=str(tiny_folder(tmp_path / "first")), kv_budget_bytes=2**22, home=home)
    live = LiveEngine(Engine(config))
    demo = build_app(live, history_folder=tmp_path)
    _, address, _ = demo.launch(server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True,
                                **page_options())
    yield address
    demo.close()
    live.current.close()


def test_a_hubs_model_is_cancelled_on_its_way_and_taken_the_next_time(contexts, tiny_url, hub):
    seen = Visit.opened(contexts("en-US", "light", False).new_page(), tiny_url)
    page, told = seen.page, seen.page.locator("#model-told")
    hub.hold = threading.Event()
    page.click("#masthead button.chip")
    page.fill("#model-spec input", "no/such/model")
    page.keyboard.press("Enter")
    expect(told.locator(".mistake")).to_contain_text("there is no model")
    expect(page.locator("#model-load")).to_be_enabled()
    expect(page.locator("#model-cancel")).to_have_count(0)
    page.fill("#model-spec input", "hf:owner/tiny")
    page.click("#model-load")
    expect(told).to_contain_text("Fetching hf:owner/tiny: ")
    expect(told.locator("progress")).to_be_visible()
    expect(page.locator("#model-load")).to_be_disabled()
    page.click("#model-cancel")
    expect(told).to_contain_text(say(EN, "model.cancelling"))
    hub.hold.set()
    expect(told).to_contain_text(say(EN, "model.cancelled", name="hf:owner/tiny", model="first"))
    expect(page.locator("#model-cancel")).to_have_count(0)
    page.locator("#language label", has_text="中文").click()
    expect(told).to_contain_text(say(ZH, "model.cancelled", name="hf:owner/tiny", model="first"))
    expect(page.locator("#masthead")).to_contain_text("first")
    hub.hold = None
    page.click("#model-load")
    expect(page.locator("#masthead")).to_contain_text("owner/tiny")
    expect(told).to_contain_text("现在所有标签页都由 owner/tiny 回答")
    page.click("#menu-A summary")
    fill(page, "A", question="Hi", context="", max_new_tokens="2")
    page.click("#alone-A")
    wait_until_done(page)
    expect(page.locator("#answer-A .meta")).to_contain_text("词元")
    page.close()
    seen.check()
