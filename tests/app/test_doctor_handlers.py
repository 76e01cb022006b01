"""The Doctor's buttons: examples, texts, rows, languages, and mistakes that stay sentences."""

from __future__ import annotations

import json

import pytest

from app.doctor_presets import EXAMPLES
from app.handlers.doctor import DoctorHandlers
from app.i18n import EN, ZH, say, sentence
from app.session import Session
from kev_engine.doctor import diagnose
from kev_engine.errors import KevError


@pytest.fixture
def session():
    return Session("preset.secrets")


def test_an_example_fills_the_form_and_is_examined(tiny_engine, session):
    handlers = DoctorHandlers(tiny_engine)
    for key in EXAMPLES:
        text, screen = handlers.example(session, key)
        assert json.loads(text) == json.loads(json.dumps(EXAMPLES[key]))
        assert set(screen) == {"map", "strip", "findings", "repair"}
        assert f'data-verdict="{diagnose(EXAMPLES[key]).verdict}"' in screen["findings"]


def test_a_mistake_is_one_sentence_and_clears_the_picture(tiny_engine, session):
    handlers = DoctorHandlers(tiny_engine)
    handlers.example(session, "doctor.example.ones")
    screen = handlers.examine(session, '{"lengths": [1, -2]}', [])
    assert "lengths[1] is -2" in screen["findings"]
    assert json.loads(screen["map"])["queries"] == 0
    assert "不小于 0 的整数" in handlers.speak(session, ZH)["findings"]


def test_texts_become_a_batch(tiny_engine, session):
    handlers = DoctorHandlers(tiny_engine)
    text, screen = handlers.describe(session, "one two\n---\nthree", "", "", "")
    assert text is not None
    assert 'data-verdict="ok"' in screen["findings"] or "BOS_MISSING" in screen["findings"]
    assert json.loads(screen["strip"])["roles"]
    nothing, screen = handlers.describe(session, "one\n---\ntwo", "", "[[0, 1]]", "")
    assert nothing is None
    assert "recorded" in screen["findings"]


def test_a_public_page_loads_no_tokenizer_by_name(tiny_engine, session):
    text, screen = DoctorHandlers(tiny_engine, is_public=True).describe(session, "one", "", "", "hf:owner/name")
    assert text is None
    assert say(EN, "error.doctor_public") in screen["findings"].replace("&#x27;", "'")
    text, screen = DoctorHandlers(tiny_engine).describe(session, "one", "", "", "/nowhere")
    assert "tokenizer is" in screen["findings"]


def test_a_tokenizer_in_a_folder_is_used(tiny_engine, session, embedded_home):
    from kev_engine.models.embedded import embedded
    from kev_engine.models.progress import silent

    folder = str(embedded(embedded_home, silent).path)
    text, _ = DoctorHandlers(tiny_engine).describe(session, "The cat", "", "", folder)
    assert json.loads(text)["tokens"] == ["The", " cat"]


def test_rows_are_turned_within_the_batch(tiny_engine, session):
    handlers = DoctorHandlers(tiny_engine)
    handlers.example(session, "doctor.example.pads")
    assert json.loads(handlers.turn(session, 7)["map"])["row"] == 1
    assert json.loads(handlers.turn(session, -1)["map"])["row"] == 0
    assert json.loads(handlers.clear(session)["map"])["queries"] == 0


def test_the_folder_of_an_upload_is_not_told(tiny_engine, session, tmp_path):
    (tmp_path / "mask.npy").write_bytes(b"no array")
    screen = DoctorHandlers(tiny_engine).examine(session, "", [str(tmp_path / "mask.npy")])
    assert "mask.npy" in screen["findings"]
    assert str(tmp_path) not in screen["findings"]


@pytest.mark.parametrize("code", ["nothing", "object", "public"])
def test_the_forms_own_errors_speak_both(code):
    error = KevError("x")
    error.code = f"doctor_{code}"
    assert sentence(error, EN) == say(EN, f"error.doctor_{code}")
    assert sentence(error, ZH) == say(ZH, f"error.doctor_{code}")
