"""The planner: numbers as people write them, mistakes by the name of their field, and files that hold what is shown."""

from __future__ import annotations

import csv
import io
import json

import pytest

from app.handlers.memory import MemoryHandlers, as_csv, as_json
from app.i18n import EN, LANGUAGES, ZH, say, sentence
from app.live_engine import LiveEngine
from app.plan_examples import plan_examples
from app.planner import CONCURRENCIES, PlanForm, read_numbers
from app.render.memory import plan_figure, plan_figures, plan_table
from app.render.text import sizes
from kev_engine.errors import FootprintRefused, InvalidField, ModelNotFound

EXAMPLES = plan_examples("embedded")
HOSTILE = "<img src=x onerror=alert(1)>${alert(1)}"


@pytest.fixture
def handlers(tiny_engine) -> MemoryHandlers:
    return MemoryHandlers(LiveEngine(tiny_engine))


@pytest.mark.parametrize(("field", "text", "name", "value"), [
    ("device", "80 GB", "device_bytes", 80_000_000_000), ("device", "80GiB", "device_bytes", 85_899_345_920),
    ("device", "1.5 tib", "device_bytes", 1_649_267_441_664), ("device", "123 B", "device_bytes", 123),
    ("usable", "90", "usable", 0.9), ("usable", "50 %", "usable", 0.5),
    ("context", "8k", "context", 8192), ("context", "8,192", "context", 8192),
    ("concurrency", " 12 ", "concurrency", 12),
    ("parameters", "", "parameters", None), ("parameters", "7e9", "parameters", 7_000_000_000),
    ("parameters", "70.6B", "parameters", 70_600_000_000), ("parameters", "135m", "parameters", 135_000_000),
])
def test_numbers_are_read_as_people_write_them(field, text, name, value):
    assert getattr(read_numbers(PlanForm(**{field: text})), name) == value


@pytest.mark.parametrize(("field", "texts", "name"), [
    ("device", ["", "80", "GB", "80 XB", "-1 GB", "0 GB", "nan GB", "1e30 TB", "8 0 GB"], "device"),
    ("usable", ["", "0", "101", "-5", "a lot", "50 GB", "nan"], "usable"),
    ("context", ["", "0", "-1", "1.5", "many", "inf", "3e9", "8 m"], "context_tokens"),
    ("concurrency", ["", "0", "x", "0.5"], "concurrency"),
    ("parameters", ["0", "-1", "x", "7 q", "1e40"], "parameters"),
])
def test_a_wrong_number_names_its_field_and_the_way_out_in_both_languages(field, texts, name):
    for text in texts:
        with pytest.raises(InvalidField) as caught:
            read_numbers(PlanForm(**{field: text}))
        assert caught.value.field == name
        for language in LANGUAGES:
            told = sentence(caught.value, language)
            assert say(language, f"field.{name}") in told
            assert say(language, f"way.{name}") in told


@pytest.mark.parametrize(("example", "per_token", "at_8k"), [
    ("memory.example.gqa", 327_680, 2.5), ("memory.example.mha", 2_621_440, 20),
    ("memory.example.seven", 524_288, 4),
])
def test_the_examples_hold_the_golden_values(handlers, example, per_token, at_8k):
    plan = handlers.plan(EXAMPLES[example])
    assert plan.footprint.bytes_per_token == per_token
    assert plan.footprint.kv_bytes(8192) == at_8k * 2**30
    shown = plan_figures(plan, None, EN)
    assert f"{per_token:,} B = " in shown
    assert plan.footprint.formula in shown


def test_the_example_that_is_refused_gives_its_reason(handlers):
    with pytest.raises(FootprintRefused) as caught:
        handlers.plan(EXAMPLES["memory.example.mla"])
    assert "kv_lora_rank 512" in sentence(caught.value, EN)
    assert "潜在注意力" in sentence(caught.value, ZH)
    assert 'role="alert"' in plan_figures(None, caught.value, ZH)


def test_the_loaded_model_is_planned_as_the_engine_stores_it(handlers, tiny_engine):
    plan = handlers.plan(PlanForm(model=handlers.loaded_model, kv_dtype="float32"))
    assert plan.footprint.bytes_per_token == tiny_engine.info.bytes_per_token
    assert plan.contexts == (1024, 2048, 4096, 8192)


def test_a_paste_counts_before_the_name_and_parameters_before_the_count(handlers):
    form = PlanForm(model="no/such", config=EXAMPLES["memory.example.gqa"].config, parameters="1B", weight_dtype="int4")
    plan = handlers.plan(form)
    assert plan.footprint.weight_bytes == 500_000_000
    assert (plan.footprint.weight_dtype, plan.footprint.kv_dtype) == ("int4", "bfloat16")


def test_without_weights_nothing_is_said_to_fit(handlers):
    config = '{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}'
    plan = handlers.plan(PlanForm(config=config))
    assert plan.asked.fits is None
    for language in LANGUAGES:
        shown = plan_figures(plan, None, language)
        assert say(language, "memory.weights_unknown") in shown
        assert say(language, "memory.row.total") not in shown
        assert say(language, "memory.table_kv") in plan_table(plan, language)


@pytest.mark.parametrize(("form", "error"), [
    (PlanForm(), InvalidField), (PlanForm(config="{"), InvalidField), (PlanForm(config="[]"), InvalidField),
    (PlanForm(config="x" * 1_000_001), InvalidField), (PlanForm(model="no/such/folder"), ModelNotFound),
    (PlanForm(config="{}", weight_dtype="float7"), InvalidField),
])
def test_what_cannot_be_planned_is_refused(handlers, form, error):
    with pytest.raises(error):
        handlers.plan(form)


@pytest.mark.parametrize("spec", ["/etc", ".", "gguf:a.gguf", "~", "owner/name"])
def test_a_public_page_reads_no_folder_of_this_machine(tiny_engine, spec):
    handlers = MemoryHandlers(LiveEngine(tiny_engine), is_public=True)
    with pytest.raises(InvalidField, match="this public page"):
        handlers.plan(PlanForm(model=spec))
    assert handlers.loaded_model == "embedded"


def test_a_folder_in_a_hub_names_clothes_is_not_read(tiny_engine, tmp_path, monkeypatch):
    """A folder `owner/name` beside the program is a local path, whatever it looks like."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    with pytest.raises(InvalidField, match="this public page"):
        MemoryHandlers(LiveEngine(tiny_engine), is_public=True).plan(PlanForm(model="owner/name"))


def test_the_files_hold_what_the_page_shows(handlers):
    plan = handlers.plan(EXAMPLES["memory.example.window"])
    rows = list(csv.DictReader(io.StringIO(as_csv(plan))))
    assert len(rows) == len(plan.contexts) * len(CONCURRENCIES)
    written = json.loads(as_json(plan))
    assert written["bytes_per_token"] == sum(layer["bytes_per_token"] for layer in written["layers"])
    assert {layer["window"] for layer in written["layers"]} == {1024, None}
    asked = next(row for row in rows if (row["context_tokens"], row["questions"]) == ("32768", "8"))
    assert int(asked["kv_bytes"]) == written["asked"]["kv_bytes"] == plan.asked.kv_bytes
    assert asked["fits"] == str(plan.asked.fits)
    assert plan_table(plan, EN).count("<td") == len(rows) + len(plan.contexts)


def test_the_figure_draws_the_table(handlers):
    plan = handlers.plan(EXAMPLES["memory.example.gqa"])
    drawn = plan_figure(plan, EN).to_dict()["data"]
    assert len(drawn) == len(CONCURRENCIES) + 2
    assert drawn[3]["y"][3] == plan.table[3][3].total_bytes / 2**30
    assert drawn[-2]["y"][0] == plan.footprint.usable_bytes / 2**30


def test_hostile_names_are_text(handlers):
    plan = handlers.plan(PlanForm(config=json.dumps({
        "model_type": HOSTILE, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8})))
    with pytest.raises(InvalidField) as caught:
        handlers.plan(PlanForm(config="{}", device=HOSTILE))
    for shown in (plan_figures(plan, None, EN), plan_figures(None, caught.value, EN)):
        assert "&lt;img" in shown
        assert "<img" not in shown
        assert "${" not in shown


@pytest.mark.parametrize(("size", "text"), [
    (36, "36 B"), (327_680, "327,680 B = 327.7 kB = 320.0 KiB"), (2_684_354_560, "2.68 GB = 2.50 GiB"),
    (4_294_967_296, "4.29 GB = 4.00 GiB"), (10**15, "1,000 TB = 909.5 TiB"),
])
def test_both_units_are_named(size, text):
    assert sizes(size) == text

