"""The history tab as a person uses it: real page, real model, real file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.board import CardValues, board
from app.i18n import EN, ZH, say
from app.run_record import from_json
from tests.app.test_history import run_record

pytestmark = [
    pytest.mark.browser,
    # Gradio calls pandas in ways that pandas now deprecates.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

HOSTILE = "${document.title='owned'} <img src=x onerror=\"document.title='owned'\"> {{value}}"


def open_tab(page: Page, language: str = EN) -> None:
    page.get_by_role("tab", name=say(language, "tab.history")).click()
    expect(page.locator("#history-keep")).to_be_visible()


def bring(page: Page, path: Path, text: str) -> None:
    """Import an exported run."""
    path.write_text(text, "utf-8")
    with page.expect_file_chooser() as chosen:
        page.click("#history-runs button[data-import]")
    chosen.value.set_files(path)


def saved(page: Page, name: str) -> str:
    with page.expect_download() as file:
        page.click(f"#history-{name}")
    return Path(file.value.path()).read_text("utf-8")


def test_a_run_is_kept_found_exported_reopened_and_deleted(page, tmp_path):
    while page.locator("#board .card").count() > 1:
        page.locator("#board .card").last.locator(".remove").click()
    page.locator("#question-A textarea").fill("What is a heliograph?")
    page.locator("#max_new_tokens-A input").fill("2")
    page.click("#run")
    expect(page.locator("#summary .meta")).to_be_visible()
    open_tab(page)
    expect(page.locator("#history-keep input")).to_be_checked()
    page.locator("#history-search textarea, #history-search input").first.fill("heliograph")
    run = page.locator(".runs button").first
    expect(run).to_contain_text("What is a heliograph?")
    run.click()
    expect(page.locator("#history-detail .question")).to_have_text("What is a heliograph?")
    expect(page.locator("#history-detail svg path")).not_to_have_count(0)
    record = from_json(saved(page, "json"))
    assert record.board.cards["A"].question == "What is a heliograph?"
    assert len(record.answers[0]["token_ids"]) <= 2
    assert "<svg" in saved(page, "html")
    assert saved(page, "csv").count("\n") == 2
    page.click("#history-open")
    expect(page.locator("#question-A textarea")).to_be_visible()
    expect(page.locator("#question-A textarea")).to_have_value("What is a heliograph?")
    expect(page.locator("#note")).to_contain_text("These are the cards of the run")
    open_tab(page)
    page.click("#history-delete")
    expect(page.locator("#history-detail")).to_contain_text(say(EN, "history.choose"))
    expect(page.locator("#history-runs")).to_contain_text(say(EN, "history.nothing"))
    page.locator("#history-search textarea, #history-search input").first.fill("")
    expect(page.locator("#history-runs")).not_to_contain_text(say(EN, "history.nothing"))


def test_imported_runs_are_compared_word_by_word_and_hostile_text_is_text(page, tmp_path):
    title = page.title()
    open_tab(page)
    bring(page, tmp_path / "a.json", run_record(board=board((CardValues("Where is it? " + HOSTILE),))).to_json())
    expect(page.locator("#history-detail .question")).to_contain_text("${document.title")
    page.click("#history-compare")
    expect(page.locator("#history-note")).to_contain_text(say(EN, "history.compare_hint"))
    bring(page, tmp_path / "b.json", run_record(board=board((CardValues("Where was it? " + HOSTILE),))).to_json())
    expect(page.locator("#history-detail del")).to_have_text("is")
    expect(page.locator("#history-detail ins")).to_have_text("was")
    bring(page, tmp_path / "c.json", "{}")
    expect(page.locator("#history-note .mistake")).to_contain_text("kev-run")
    assert page.title() == title
    page.locator("#language label", has_text="中文").click()
    expect(page.locator("#history-detail")).to_contain_text(say(ZH, "compare.only"))
    assert page.locator("img[src='x']").count() == 0


def test_the_switch_stays_and_all_is_deleted_only_when_sure(page, tmp_path):
    open_tab(page)
    bring(page, tmp_path / "a.json", run_record().to_json())
    expect(page.locator(".runs button").first).to_contain_text("Where?")
    page.locator("#history-keep input").uncheck()
    expect(page.locator("#history-note")).to_contain_text(say(EN, "history.off"))
    page.reload()
    page.wait_for_selector("#mask canvas[data-version]")
    open_tab(page)
    expect(page.locator("#history-note")).to_contain_text(say(EN, "history.off"))
    expect(page.locator("#history-keep input")).not_to_be_checked()
    page.locator("#history-keep input").check()
    expect(page.locator("#history-note")).to_contain_text("history.sqlite")
    page.click("#history-clear")
    expect(page.locator(".runs button").first).to_be_visible()
    page.click("#history-clear-sure")
    expect(page.locator("#history-runs")).to_contain_text(say(EN, "history.empty"))


def test_copied_code_names_this_page(page, url, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_tab(page)
    bring(page, tmp_path / "a.json", run_record().to_json())
    page.click("#history-python")
    expect(page.locator("#history-note .copied")).to_have_text(say(EN, "history.copied"))
    code = page.evaluate("navigator.clipboard.readText()")
    assert f'Client("{url.rstrip("/")}")' in code
    page.click("#history-curl")
    page.evaluate("""async () => {
        const copied = async () => (await navigator.clipboard.readText()).startsWith("event=");
        while (!await copied()) await new Promise(then => setTimeout(then, 50));
    }""")
    assert json.dumps("Where?") in page.evaluate("navigator.clipboard.readText()")
    page.click("#history-compare")
    expect(page.locator("#history-note")).to_have_text(say(EN, "history.compare_hint"))
