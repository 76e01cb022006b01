"""The adapters tab as a person uses it: real page, real model, the demo adapters."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from app import build_app, page_options
from app.i18n import EN, ZH, say
from tests.browser.conftest import ROOT, free_port

pytestmark = [
    pytest.mark.browser,
    # Gradio calls pandas in ways that pandas now deprecates.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]
DEMO = ROOT / "assets" / "adapters"
FILES = ("adapter_config.json", "adapter_model.safetensors")
UPLOADED = re.compile(r"adapter_model\s*\.safetensors")
"""Gradio sets the ending apart."""


@pytest.fixture
def adapters(page, engine) -> Iterator[Page]:
    """The tab, open; at the end the engine has its own adapters again, whatever was done."""
    open_tab(page)
    yield page
    for name in set(engine.adapters.names()) - {"json", "pirate", "terse"}:
        engine.adapters.unload(name)


def open_tab(page: Page, language: str = EN) -> None:
    page.get_by_role("tab", name=say(language, "tab.adapters")).click()
    expect(page.locator("#adapters-table")).to_be_visible()


def row(page: Page, name: str):
    return page.locator(f'#adapters-table tr[data-name="{name}"]')


def test_files_are_uploaded_renamed_replaced_and_unloaded(adapters, engine):
    page = adapters
    page.locator("#adapters-files input[type=file]").set_input_files([str(DEMO / "terse" / name) for name in FILES])
    expect(page.locator("#adapters-files")).to_contain_text(UPLOADED)
    page.fill("#adapters-name input", "mine")
    page.click("#adapters-add")
    expect(page.locator("#adapters-told")).to_contain_text("Loaded “mine”: rank 4")
    version = engine.adapters.info("mine").version
    assert version == engine.adapters.info("terse").version
    expect(row(page, "mine")).to_contain_text(version)
    expect(page.locator("#adapters-name input")).to_have_value("")
    expect(page.locator("#adapters-files")).not_to_contain_text(UPLOADED)

    row(page, "mine").locator("[data-act=rename]").click()
    row(page, "mine").locator("th input").fill("yours")
    row(page, "mine").locator("th input").press("Enter")
    expect(page.locator("#adapters-said")).to_contain_text("“mine” is now called “yours”")
    expect(row(page, "mine")).to_have_count(0)

    row(page, "yours").locator("[data-act=replace]").click()
    expect(page.locator("#adapters-name input")).to_have_value("yours")
    page.fill("#adapters-source input", str(DEMO / "pirate"))
    page.click("#adapters-replace")
    expect(page.locator("#adapters-told")).to_contain_text("“yours” is now version")
    expect(row(page, "yours")).to_contain_text(engine.adapters.info("pirate").version)
    expect(page.locator("#adapters-add")).to_be_visible()

    page.get_by_role("tab", name=say(EN, "tab.run")).click()
    expect(page.locator("#adapter-A option[value=yours]")).to_have_count(1)
    open_tab(page)
    row(page, "yours").locator("[data-act=unload]").click()
    expect(row(page, "yours")).to_have_count(1)
    row(page, "yours").get_by_text(say(EN, "adapters.sure")).click()
    expect(row(page, "yours")).to_have_count(0)
    page.get_by_role("tab", name=say(EN, "tab.run")).click()
    expect(page.locator("#adapter-A option[value=yours]")).to_have_count(0)


def test_a_zip_is_added_and_a_refusal_stands_in_the_form(adapters, tmp_path):
    page = adapters
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", DEMO / "json")
    page.locator("#adapters-files input[type=file]").set_input_files(archive)
    expect(page.locator("#adapters-files")).to_contain_text("zipped.zip")
    page.click("#adapters-add")
    expect(row(page, "zipped")).to_be_visible()
    expect(page.locator("#adapters-files")).not_to_contain_text("zipped")
    broken = tmp_path / "broken"
    shutil.copytree(DEMO / "json", broken)
    (broken / FILES[0]).write_text("{")
    page.fill("#adapters-source input", str(broken))
    page.click("#adapters-add")
    expect(page.locator("#adapters-told .mistake")).to_contain_text("“broken” was refused: adapter_config.json is not")
    expect(page.locator("#adapters-source input")).to_have_value(str(broken))
    page.fill("#adapters-source input", "owner/name")
    page.click("#adapters-add")
    expect(page.locator("#adapters-told .mistake")).to_contain_text("hf:owner/name")


def test_one_question_is_compared_in_one_pass_shown_by_adapter_and_said_in_chinese(adapters):
    page = adapters
    page.fill("#compare-question textarea", "What is the capital of Germany?")
    page.fill("#compare-max :is(input, textarea)", "6")
    page.click("#compare")
    expect(page.locator(".voice")).to_have_count(4)
    done = ".voice:is([data-status=stop], [data-status=length])"
    expect(page.locator(done)).to_have_count(4, timeout=90_000)
    assert [voice.get_attribute("data-name") for voice in page.locator(".voice").all()] == [
        "base", "json", "pirate", "terse"]
    assert page.locator(".voice[data-name=base] mark").count() == 0
    assert page.locator(".voice[data-name=pirate] mark").count() > 0
    expect(page.locator("#compare-summary")).to_contain_text("4 sequences each")
    runs = page.locator("#adapters-picture .flow .run")
    expect(runs).to_have_count(4)
    colours = [run.evaluate("run => getComputedStyle(run).borderLeftColor") for run in runs.all()]
    assert len(set(colours)) == 4
    voices = page.locator(".voice").all()
    assert [voice.evaluate("voice => getComputedStyle(voice).borderLeftColor") for voice in voices] == colours
    assert "Germany" in runs.nth(2).inner_text()
    assert runs.nth(2).locator("i.new").count() > 2
    before = page.locator("#adapters-picture canvas").evaluate("canvas => canvas.toDataURL()")
    runs.nth(2).locator("i").nth(3).hover()
    expect(page.locator("#adapters-mask .hover")).to_contain_text("(pirate) reads key")
    page.wait_for_function(
        "before => document.querySelector('#adapters-picture canvas').toDataURL() !== before", arg=before)
    page.locator("#language").get_by_text("中文").click()
    expect(page.locator("#adapters-head")).to_contain_text(say(ZH, "adapters.form"))
    expect(page.locator(".voice").first).to_contain_text(say(ZH, "base"))
    expect(page.locator("#adapters-picture .tokens .title")).to_have_text(say(ZH, "tokens.title"))
    expect(page.locator("#adapters-add")).to_have_text(say(ZH, "adapters.add"))
    english = [say(EN, f"adapters.column.{name}") for name in ("version", "modules", "uses")]
    shown = page.locator("#adapters-tab").inner_text()
    assert not [word for word in english if word in shown]
    page.locator("#language").get_by_text("EN").click()
    expect(page.locator("#adapters-add")).to_have_text(say(EN, "adapters.add"))


def test_effects_are_measured(adapters):
    page = adapters
    page.click("#adapters-check")
    expect(page.locator("#adapters-said")).to_contain_text("Measured 3 against the base", timeout=60_000)
    for name in ("json", "pirate", "terse"):
        expect(row(page, name)).to_contain_text("%")


def test_on_a_public_page_nothing_can_be_changed(engine, browser):
    demo = build_app(engine, is_public=True)
    _, address, _ = demo.launch(server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True,
                                **page_options())
    page = browser.new_page()
    try:
        page.goto(address)
        page.wait_for_selector("#mask canvas[data-version]")
        open_tab(page)
        expect(page.locator("#adapters-head")).to_contain_text(say(EN, "adapters.fixed"))
        expect(row(page, "json")).to_be_visible()
        assert page.locator("#adapters-table [data-act]").count() == 0
        for hidden in ("#adapters-files", "#adapters-source", "#adapters-name", "#adapters-add"):
            expect(page.locator(hidden)).to_be_hidden()
    finally:
        page.close()
        demo.close()
