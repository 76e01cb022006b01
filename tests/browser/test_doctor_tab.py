"""The Doctor tab as a person uses it, in Chromium: paste, upload, texts, the mask at three scales, findings, copies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from app.doctor_presets import EXAMPLES
from app.i18n import CATALOGUE, EN, ZH, say

pytestmark = [
    pytest.mark.browser,
    # Gradio calls pandas in ways that pandas now deprecates.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

HOSTILE = ["${document.title='owned'}", "`${1+1}`", "<img src=x onerror=\"document.title='owned'\">", "{{value}}",
           "</script><b>", "中文 词", "👩‍👩‍👧", "a\u200bb\n\t"]
SENTENCE = "query 7 ‘·the’ (question B) reads key 3 ‘·cat’ (question A)"


def open_doctor(page: Page) -> Page:
    page.get_by_role("tab").nth(1).click()
    expect(page.locator("#doctor-map canvas").first).to_be_visible()
    return page


@pytest.fixture
def doctor(page: Page) -> Page:
    """The tab, open and empty."""
    batch = open_doctor(page).locator("#doctor-batch textarea")
    # So that it is seen when it was cleared: an answer that came later would clear what a test types.
    batch.fill("?")
    page.click("#doctor-clear")
    expect(batch).to_have_value("")
    expect(page.locator("#doctor-findings .hint")).to_be_visible()
    return page


def examine(page: Page, batch: dict[str, object]) -> None:
    page.locator("#doctor-batch textarea").fill(json.dumps(batch, ensure_ascii=False))
    page.click("#doctor-examine")


def choose(page: Page, key: str) -> None:
    page.click("#doctor-examples input")
    page.get_by_role("option", name=say(EN, f"doctor.example.{key}")).click()
    expect(page.locator("#doctor-findings [data-verdict]")).to_be_visible()


def stretch(page: Page) -> list[int]:
    """First query, first key, rows and columns in sight, once they are drawn."""
    page.wait_for_timeout(100)
    return [int(part) for part in page.locator("#doctor-map canvas").first.get_attribute("data-view").split(",")]


def centre_of(page: Page, query: int, key: int) -> tuple[float, float]:
    """Where a cell of the large pane lies on the screen."""
    box = page.locator("#doctor-map canvas").first.bounding_box()
    q, k, rows, cols = stretch(page)
    edge = 92 if max(rows, cols) <= 28 else 18
    return (box["x"] + edge + (key - k + 0.5) * (box["width"] - edge) / cols,
            box["y"] + edge + (query - q + 0.5) * (box["height"] - edge) / rows)


def leak_pixels(page: Page, pane: str) -> int:
    """How many pixels of a pane have the colour of leaks."""
    return page.locator(f"#doctor-map canvas[data-side={pane}]").evaluate("""canvas => {
        const probe = document.createElement("i");
        probe.style.color = getComputedStyle(canvas).getPropertyValue("--leak");
        document.body.append(probe);
        const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
        probe.remove();
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 200 && wanted.every((value, index) => Math.abs(value - data[at + index]) < 12)) count++;
        return count;
    }""")


LEAKY = {"lengths": [5, 4], "tokens": ["A", " big", " red", " cat", ".", "And", " see", " the", " sea"],
         "attention_mask": {"block_causal": [5, 4], "repeat": [1, 1], "flip": [[7, 3]]}, "mask_dtype": "bool",
         "consumer": "sdpa"}


def test_a_cell_is_named_on_hover_and_when_locked(doctor):
    page = doctor
    examine(page, LEAKY)
    expect(page.locator("#doctor-findings code")).to_have_text("CROSS_SEGMENT_LEAK")
    told = page.locator("#doctor-map .hover")
    page.mouse.move(*centre_of(page, 7, 3))
    expect(told).to_have_text(SENTENCE + say(EN, "doctor.is_leak"))
    page.mouse.move(*centre_of(page, 3, 3))
    expect(told).to_have_text("query 3 ‘·cat’ (question A) reads key 3 ‘·cat’ (question A)")
    page.mouse.click(*centre_of(page, 7, 3))
    page.mouse.move(5, 5)
    expect(told).to_have_text(SENTENCE + say(EN, "doctor.is_leak"))
    expect(page.locator("#doctor-map .strip-line.query")).to_have_attribute("data-token", "7")
    expect(page.locator("#doctor-map .strip-line.key")).to_have_attribute("data-token", "3")
    page.locator("#doctor-map canvas").first.press("ArrowLeft")
    expect(told).to_have_text("query 7 ‘·the’ (question B) does not read key 2 ‘·red’ (question A)")
    axes = page.locator("#doctor-map .axis").all_inner_texts()
    assert axes == [say(EN, "doctor.query"), say(EN, "doctor.key")]
    assert axes[0].startswith("query (reads)")
    assert axes[1].startswith("key (is read)")


def test_one_leaking_cell_in_32k_tokens_stays_visible_at_every_scale(doctor):
    page = doctor
    choose(page, "one_cell")
    assert stretch(page) == [0, 0, 32768, 32768]
    assert leak_pixels(page, "difference") > 20
    assert leak_pixels(page, "effective") > 20
    assert leak_pixels(page, "expected") == 0
    for scale, most in (("block", 96), ("token", 14)):
        page.click(f"#doctor-map button[data-scale={scale}]")
        q, k, rows, cols = stretch(page)
        assert rows == cols == most
        assert q <= 24000 < q + rows
        assert k <= 5000 < k + cols
        assert leak_pixels(page, "difference") > 15
    page.mouse.move(*centre_of(page, 24000, 5000))
    expect(page.locator("#doctor-map .hover")).to_contain_text("query 24000 (question F) reads key 5000 (question B)")
    page.click("#doctor-map button[data-scale=overview]")
    assert stretch(page) == [0, 0, 32768, 32768]


def test_a_finding_takes_the_mask_and_the_strip_to_its_place(doctor):
    page = doctor
    choose(page, "one_cell")
    page.click("#doctor-findings [data-go]")
    q, k, rows, cols = stretch(page)
    assert q <= 24000 < q + rows <= q + 14
    assert k <= 5000 < k + cols <= k + 14
    expect(page.locator("#doctor-map .strip-line.query")).to_have_attribute("data-token", "24000")
    expect(page.locator("#doctor-map button[data-scale=token]")).to_have_attribute("aria-pressed", "true")
    choose(page, "pads")
    page.click("#doctor-map [data-turn='1']")
    expect(page.locator("#doctor-map .rows span")).to_have_text("row 1 of 2")
    page.locator("#doctor-findings [data-go]", has_text="ROW_EMPTY").click()
    expect(page.locator("#doctor-map .rows span")).to_have_text("row 0 of 2")


def test_a_mask_without_order_is_sent_closer_where_it_is_looked_at(doctor, tmp_path):
    mask = np.random.default_rng(5).random((900, 900)) < 0.5
    mask[700, 100] = True
    np.save(tmp_path / "mask.npy", mask)
    page = doctor
    page.locator("#doctor-batch textarea").fill('{"lengths": [600, 300], "consumer": "sdpa"}')
    page.set_input_files("#doctor-files input[type=file]", str(tmp_path / "mask.npy"))
    expect(page.locator("#doctor-files")).to_contain_text("mask")
    page.click("#doctor-examine")
    expect(page.locator("#doctor-findings code").first).to_have_text("CROSS_SEGMENT_LEAK")
    page.click("#doctor-map button[data-scale=token]")
    expect(page.locator("#doctor-map .hover")).to_have_text("")
    q, k, _, _ = stretch(page)
    for query, key in ((q + 3, k + 2), (q + 8, k + 11)):
        page.mouse.move(*centre_of(page, query, key))
        reads = "reads" if mask[query, key] else "does not read"
        expect(page.locator("#doctor-map .hover")).to_contain_text(f"{reads} key {key}")


def test_hostile_chinese_and_emoji_tokens_are_shown_as_text(doctor):
    page = doctor
    title = page.title()
    total = len(HOSTILE)
    examine(page, {"lengths": [4, total - 4], "tokens": HOSTILE, "attention_mask": {"ones": [1, total]},
                   "consumer": "hf", "spans": {HOSTILE[0]: None, HOSTILE[2]: None}})
    expect(page.locator("#doctor-findings")).to_contain_text("span '<img src=x onerror")
    shown = page.locator("#doctor-map .strip-cell.text").all_inner_texts()[1:]
    assert shown[0] == HOSTILE[0]
    assert shown[5] == "中文·词"
    assert shown[6] == HOSTILE[6]
    assert shown[7] == "aU+200Bb⏎⇥"
    page.mouse.move(*centre_of(page, 4, 2))
    expect(page.locator("#doctor-map .hover")).to_contain_text("<img")
    page.mouse.click(*centre_of(page, 5, 0))
    expect(page.locator("#doctor-map .hover")).to_contain_text("‘中文·词’ (question B) reads key 0 ‘${document.title")
    assert page.title() == title
    assert page.locator(".gradio-container img[src='x']").count() == 0


def test_texts_and_the_models_tokenizer_make_a_batch(doctor):
    page = doctor
    page.click("#doctor-text > button")
    page.locator("#doctor-pieces textarea").fill("The cat sat.\n---\nWho reads 雨🙂?")
    page.locator("#doctor-recorded :is(input, textarea)").fill("[[0, 3], [3, 12]]")
    page.click("#doctor-describe")
    expect(page.locator("#doctor-findings code").first).to_have_text("CROSS_SEGMENT_LEAK")
    described = json.loads(page.locator("#doctor-batch textarea").input_value())
    assert described["tokens"][:4] == ["The", " cat", " sat", "."]
    assert described["spans"] == {"A": [0, 3], "B": [3, 12]}
    heads = page.locator("#doctor-map .strip-head .strip-cell").all_inner_texts()
    assert heads == [say(EN, f"doctor.strip.{name}") for name in
                     ("index", "id", "text", "bytes", "offsets", "role", "segment", "position")]
    assert page.locator("#doctor-map .strip-line .flag").count() >= 2
    expect(page.locator("#doctor-map .strip-line.split .bytes").first).to_contain_text("e9")
    expect(page.locator("#doctor-map .strip-line .position.wrong").first).to_contain_text("right is")


def test_repaired_arrays_are_copied_and_found_right(doctor):
    page = doctor
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    choose(page, "shifted")
    copied = {}
    for form in ("Python", "JSON"):
        section = page.locator("#doctor-repair section", has=page.locator("span", has_text=form))
        section.locator("[data-copy]").click()
        expect(section.locator("[data-copy]")).to_have_text(say(EN, "doctor.copied"))
        copied[form] = page.evaluate("navigator.clipboard.readText()")
    assert "lengths = torch.tensor([6, 6, 4])" in copied["Python"]
    repaired = json.loads(copied["JSON"])
    examine(page, {**EXAMPLES["doctor.example.shifted"], **repaired})
    expect(page.locator("#doctor-findings [data-verdict=ok]")).to_be_visible()
    assert leak_pixels(page, "difference") == 0


def test_mistakes_are_sentences_and_clear_empties(doctor):
    page = doctor
    for text, told in (('{"lengths": [1, -2]}', "lengths[1] is -2"), ("{", "is not JSON"), ("[]", "named entries"),
                       ('{"attention_mask": {"file": "/etc/passwd"}}', "was not uploaded"), ("", "nothing to examine")):
        page.locator("#doctor-batch textarea").fill(text)
        page.click("#doctor-examine")
        expect(page.locator("#doctor-findings .mistake")).to_contain_text(told)
    choose(page, "ones")
    page.click("#doctor-clear")
    expect(page.locator("#doctor-findings .hint")).to_be_visible()
    expect(page.locator("#doctor-batch textarea")).to_have_value("")


def test_chinese_speaks_everywhere_and_a_switch_keeps_the_stretch(doctor):
    page = doctor
    page.locator("#language label", has_text="中文").click()
    expect(page.locator("#doctor-examine")).to_have_text(say(ZH, "doctor.examine"))
    page.click("#doctor-examples input")
    page.get_by_role("option", name=say(ZH, "doctor.example.ones")).click()
    expect(page.locator("#doctor-findings")).to_contain_text("段 B 的查询 6 读到段 A 的键 0")
    english = {pair[0] for pair in CATALOGUE.values() if pair[0] != pair[1] and len(pair[0]) > 3}
    words = "#doctor-tab :is(button, label, span, figcaption b, summary, .strip-head div)"
    shown = page.locator(words).all_inner_texts()
    assert [text for text in shown if text.strip() in english] == []
    page.mouse.click(*centre_of(page, 6, 0))
    expect(page.locator("#doctor-map .hover")).to_contain_text("读键 0")
    page.locator("#language label", has_text="EN").click()
    expect(page.locator("#doctor-map .hover")).to_contain_text("reads key 0")
    expect(page.locator("#doctor-findings")).to_contain_text("query 6 of segment B reads key 0 of segment A")
