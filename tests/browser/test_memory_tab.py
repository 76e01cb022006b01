"""The memory tab as a person uses it: real page, real configurations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.i18n import EN, ZH, say

pytestmark = [
    pytest.mark.browser,
    # Gradio calls pandas in ways that pandas now deprecates.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

HOSTILE = "${document.title='owned'} <img src=x onerror=\"document.title='owned'\"> {{value}}"


def open_tab(page: Page, language: str = EN) -> None:
    page.get_by_role("tab", name=say(language, "tab.memory")).click()
    expect(page.locator("#plan")).to_be_visible()


def fill(page: Page, **fields: str) -> None:
    for name, text in fields.items():
        page.locator(f"#plan-{name} :is(textarea, input)").first.fill(text)


def test_the_golden_plan_is_shown_drawn_and_saved(page, tmp_path: Path):
    open_tab(page)
    expect(page.locator("#plan-figures")).to_contain_text(say(EN, "memory.empty"))
    expect(page.locator("#plan-csv")).to_be_disabled()
    page.click("#memory-example-gqa")
    expect(page.locator("#plan-figures .a-token")).to_contain_text("327,680 B = 327.7 kB = 320.0 KiB")
    expect(page.locator("#plan-figures .formula")).to_have_text("2 × 80 × 8 × 128 × 2 = 327,680")
    expect(page.locator("#plan-figures")).to_contain_text("8 × 8,192 tokens = 21.47 GB = 20.00 GiB")
    expect(page.locator("#plan-table tbody tr")).to_have_count(8)
    expect(page.locator("#plan-figure .scatterlayer .trace")).to_have_count(9)
    with page.expect_download() as saved:
        page.click("#plan-csv")
    rows = list(csv.DictReader(Path(saved.value.path()).read_text().splitlines()))
    assert saved.value.suggested_filename == "kev-plan.csv"
    assert next(row["kv_bytes"] for row in rows if row["context_tokens"] == "8192") == "2684354560"
    with page.expect_download() as saved:
        page.click("#plan-json")
    assert json.loads(Path(saved.value.path()).read_text())["bytes_per_token"] == 327_680
    page.locator("#language label", has_text="中文").click()
    expect(page.locator("#plan-figures")).to_contain_text(say(ZH, "memory.row.gqa"))
    expect(page.locator("#plan-table caption")).to_have_text(say(ZH, "memory.table"))
    page.locator("#language label", has_text="EN").click()
    expect(page.locator("#plan-table caption")).to_have_text(say(EN, "memory.table"))


def test_mistakes_and_refusals_are_one_sentence_and_the_next_plan_works(page):
    open_tab(page)
    title = page.title()
    fill(page, device=HOSTILE)
    page.click("#plan")
    expect(page.locator("#plan-figures .mistake")).to_contain_text("${document.title")
    fill(page, device="80 GB", config=json.dumps({"model_type": HOSTILE, "num_hidden_layers": 1,
                                                  "num_attention_heads": 1, "head_dim": 8}))
    page.click("#plan")
    expect(page.locator("#plan-figures .note")).to_contain_text("${document.title")
    page.click("#memory-example-mla")
    expect(page.locator("#plan-figures .mistake")).to_contain_text("multi-head latent attention")
    expect(page.locator("#plan-table table")).to_have_count(0)
    fill(page, config="")
    fill(page, model="embedded")
    page.click("#plan")
    expect(page.locator("#plan-figures .a-token")).to_contain_text("46,080 B")
    assert page.title() == title
    assert page.locator("#plan-result img[src='x']").count() == 0
