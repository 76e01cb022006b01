"""What the Doctor tab shows: cells exactly, no matrix on the wire, text escaped, colours that all eyes tell apart."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import render
from app.doctor_presets import EXAMPLES
from app.doctor_view import DoctorView
from app.i18n import EN, LANGUAGES, say
from app.render.doctor import segment_name
from app.render.doctor_strip import split_tokens
from kev_engine.doctor import diagnose
from kev_engine.errors import InvalidField

HOSTILE = ["${alert(1)}", "`${1+1}`", "<img src=x onerror=alert(1)>", "</script><script>", "{{value}}", "\" onload='x'"]
CSS = Path(__file__).parents[2] / "assets" / "css"


def view_of(batch: dict[str, object], **more: object) -> DoctorView:
    return DoctorView(batch, diagnose(batch), **more)


def drawn(listed: list[list[int]], shape: tuple[int, int]) -> np.ndarray:
    cells = np.zeros(shape, dtype=bool)
    for row, row_end, key, key_end, slides, grows in listed:
        for index in range(row_end - row):
            cells[row + index, key + slides * index : key_end + grows * index] = True
    return cells


@pytest.mark.parametrize("key", [key for key in EXAMPLES if key != "doctor.example.one_cell"])
def test_the_three_panes_are_the_report(key):
    view = view_of(EXAMPLES[key])
    shown = json.loads(render.doctor_map(view, EN))
    judged = view.report.facts.judged
    if not judged:
        assert (shown["queries"], shown["empty"]) == (0, say(EN, "doctor.unknown"))
        return
    shape = (shown["queries"], shown["keys"])
    right, leak, missing = (drawn(shown[name], shape) for name in ("right", "leak", "missing"))
    live = judged[0].live[:, None]
    assert not (right & leak | right & missing | leak & missing).any()
    assert np.array_equal((right | leak) & live, judged[0].actual.dense() & live)
    assert np.array_equal((right | missing) & live, judged[0].should.dense() & live)


def test_32k_tokens_travel_in_a_few_numbers_and_the_leak_is_among_them():
    text = render.doctor_map(view_of(EXAMPLES["doctor.example.one_cell"]), EN)
    shown = json.loads(text)
    assert shown["leak"] == [[24000, 24001, 5000, 5001, 0, 1]]
    assert (shown["step"], len(shown["right"])) == (1, 8)
    assert len(text) < 10_000


def test_a_mask_without_any_order_comes_in_blocks_and_stretches_of_it_exactly():
    size = 1000
    mask = np.random.default_rng(3).random((size, size)) < 0.5
    view = view_of({"lengths": [size], "attention_mask": mask, "consumer": "sdpa"})
    text = render.doctor_map(view, EN)
    shown = json.loads(text)
    assert shown["step"] == 4
    assert len(text) < 600_000
    near = json.loads(render.doctor_window(view, (300, 400), (0, 120)))
    assert (near["queries"], near["keys"]) == ([300, 400], [0, 120])
    cells = drawn(near["right"], (size, size)) | drawn(near["leak"], (size, size))
    assert np.array_equal(cells[300:400, :120], mask[300:400, :120])
    assert not cells[:300].any()
    huge = json.loads(render.doctor_window(view, (-5, 10**9), (-5, 10**9)))
    assert huge["queries"] == [0, 512]
    assert huge["keys"] == [0, 512]


def test_rows_of_a_batch_are_drawn_one_at_a_time():
    view = view_of(EXAMPLES["doctor.example.pads"])
    first, second = (json.loads(render.doctor_map(replace(view, row=row), EN)) for row in (0, 1))
    assert (first["rows"], second["row"]) == (2, 1)
    assert first["right"] != second["right"]
    strip = json.loads(render.doctor_strip(replace(view, row=1)))
    assert strip["ids"] == [21, 22, 23, 24, 25, 26]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_text_is_text(text, language):
    batch = {"lengths": [2], "tokens": [text, text], "spans": {text: None}, "input_ids": [1, 2],
             "adapter": {"names": [text], "loaded": [text + "x"]}, "special_ids": {text: [1, 2]}}
    for view in (view_of(batch), DoctorView(error=InvalidField(text, text, text))):
        for shown in (render.doctor_findings(view, language), render.doctor_repair(view, language)):
            assert "<img" not in shown
            assert "<script" not in shown
            assert not set("${}`") & set(shown)
    assert json.loads(render.doctor_strip(view_of(batch)))["texts"] == [text, text]


def test_findings_carry_where_they_are_and_speak_the_language():
    view = view_of(EXAMPLES["doctor.example.ones"])
    english, chinese = (render.doctor_findings(view, language) for language in LANGUAGES)
    assert 'data-go="6,0,0"' in english
    assert "query 6 of segment B reads key 0 of segment A" in english
    assert "段 B 的查询 6 读到段 A 的键 0" in chinese
    assert 'data-verdict="error"' in english


def test_repaired_arrays_stand_as_json_and_python():
    shown = render.doctor_repair(view_of(EXAMPLES["doctor.example.cu"]), EN)
    assert "&quot;cu_seqlens&quot;: [0, 6, 12, 16]" in shown
    assert "cu_seqlens = torch.tensor([0, 6, 12, 16], dtype=torch.int32)" in shown
    assert render.doctor_repair(view_of(EXAMPLES["doctor.example.right"]), EN) == ""


def test_the_strip_tells_wrong_positions_and_split_characters():
    strip = json.loads(render.doctor_strip(view_of(EXAMPLES["doctor.example.no_reset"])))
    assert strip["positions"] == [[0, 0]]
    assert strip["right"] == [[0, 0], [6, 0], [12, 0]]
    strip = json.loads(render.doctor_strip(view_of(EXAMPLES["doctor.example.split"])))
    assert strip["split"] == [0, 1]
    assert strip["bytes"][:2] == ["f0 9f", "99 82"]


@pytest.mark.parametrize(("pieces", "split"), [
    (["中".encode(), b"a"], []), (["中".encode()[:1], "中".encode()[1:]], [0, 1]), ([b"\xff", b"a"], [0]),
    (["🙂".encode()[:1], "🙂".encode()[1:2], "🙂".encode()[2:], "é".encode()], [0, 1, 2]), ([b"a", b"\xe4"], [1]),
    ([b"", b"ok"], []), (["a中".encode()[:2], "中b".encode()[1:]], [0, 1]),
])
def test_split_characters(pieces, split):
    assert split_tokens(pieces) == split


def test_segment_names_go_on_behind_z():
    assert [segment_name(number) for number in (0, 1, 25, 26, 27, 701, 702)] == ["A", "B", "Z", "AA", "AB", "ZZ", "AAA"]


# What a person without one kind of cone sees of linear RGB (Machado, Oliveira and Fernandes 2009, full severity).
VISION = {
    "all": np.eye(3),
    "protan": np.array([
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}


def lab(colour: str, vision: np.ndarray) -> np.ndarray:
    """CIELAB of a #rrggbb as that vision has it."""
    rgb = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(vision @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = np.cbrt(np.maximum(xyz / np.array([0.9505, 1.0, 1.089]), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_leaks_and_missing_cells_are_told_apart_by_every_eye(scheme, vision):
    colours = {}
    for name in ("page.css", "doctor.css"):
        block = re.search(rf"^(?::root, )?\.{scheme} \{{(.*?)\}}", (CSS / name).read_text(), re.DOTALL | re.MULTILINE)
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[1]))
    seen = {name: lab(colours[name], VISION[vision]) for name in ("leak", "missing", "right-cell", "canvas")}
    for one, other in (("leak", "missing"), ("leak", "right-cell"), ("leak", "canvas"), ("missing", "right-cell"),
                       ("missing", "canvas"), ("right-cell", "canvas")):
        least = 12 if {one, other} == {"right-cell", "canvas"} else 25
        assert np.linalg.norm(seen[one] - seen[other]) > least, (one, other)
