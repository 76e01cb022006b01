"""Another model while the page stays open: it is checked first, the old one answers until then and where it fails."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from dataclasses import replace

import pytest

from app.board import Board, CardValues
from app.handlers.adapters import AdapterHandlers
from app.handlers.model import ModelHandlers
from app.handlers.run import RunHandlers
from app.i18n import EN, LANGUAGES, ZH, sentence
from app.live_engine import LiveEngine
from app.render.model import model_told
from app.session import Session
from kev_engine import Engine, EngineConfig, KevError, Question
from kev_engine.config import cache_home
from kev_engine.models import need
from tests.models.hub_server import local_hub, use_hub
from tests.models.tiny import tiny_folder
from tests.models.tiny_gguf import write_gguf

CARDS = Board({"A": CardValues("Who?", temperature="0", max_new_tokens="4"), "B": CardValues("What?")})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return [tiny_folder(place / name, kind) for name, kind in (("one", "llama"), ("two", "qwen2"))]


@pytest.fixture
def live(folders):
    # The usual home holds the compiled kernels.
    home = cache_home(os.environ)
    live = LiveEngine(Engine(EngineConfig(model=str(folders[0]), threads=1, kv_budget_bytes=2**20, home=home)))
    yield live
    live.current.close()


def test_another_model_takes_over_and_nothing_of_the_old_one_stays(live, folders):
    handlers, runs, session = ModelHandlers(live, live.config), RunHandlers(live), Session("preset.secrets")
    live.temperature.set(0.5)
    list(runs.run(session, CARDS))
    text, old = session.view.cards["A"].answer.text, weakref.ref(live.current)
    told = list(handlers.choose(f"  {folders[1]} "))
    assert [told[0].key, told[-1].key] == ["model.checking", "model.loaded"]
    assert live.info.model == "two"
    assert live.temperature.current().value == 0.5
    gc.collect()
    assert old() is None
    shown = runs.speak(session, EN)
    assert '"size":0' in shown["mask"]
    assert text.strip() in shown["answer_A"] or not text.strip()
    AdapterHandlers(live).screen(session)
    assert not list(handlers.choose(str(folders[1])))[-1].key.startswith("error")
    assert live.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens


def test_a_run_that_goes_on_is_stopped_with_a_sentence(live, folders):
    runs, session = RunHandlers(live), Session("preset.secrets")
    other = Engine(replace(live.config, model=str(folders[1])))
    changes = runs.run(session, Board({"A": CardValues("Who?", max_new_tokens="490", ignore_eos="1")}))
    for change in changes:
        if "text" in change.get("answer_A", "") and session.view.num_written:
            break
    live.replace(other)
    list(changes)
    assert session.view.notice.code == "engine_closed"
    assert session.view.num_written
    assert "model" in sentence(session.view.notice, EN)


@pytest.mark.parametrize("spec", ["", "no/such", "gguf:nowhere.gguf", "hf:not a name"])
def test_what_is_no_model_is_refused_and_the_old_one_answers(live, spec):
    before = live.current
    told = list(ModelHandlers(live, live.config).choose(spec))
    assert isinstance(told[-1], KevError)
    assert live.current is before
    assert live.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens
    for language in LANGUAGES:
        assert model_told(told[-1], language).startswith('<p class="mistake"')


def test_a_model_that_does_not_fit_is_refused_before_a_weight_is_read(live, folders, monkeypatch):
    monkeypatch.setattr(live.current, "free_bytes", lambda: 1000)
    loaded = []
    monkeypatch.setattr("app.handlers.model.Engine", lambda *_: loaded.append(1))
    [*_, refused] = ModelHandlers(live, live.config).choose(str(folders[1]))
    assert refused.code == "not_enough_space"
    assert refused.facts["free_bytes"] == 1000
    assert loaded == []
    assert "1,000" in sentence(refused, ZH)


def test_what_a_model_needs_is_what_it_takes(live, folders):
    needed = need.weight_bytes(str(folders[0]), "float32", live.config.home)
    assert needed == live.info.weight_bytes


def test_only_one_model_is_loaded_at_a_time(live, folders):
    handlers = ModelHandlers(live, live.config)
    first = handlers.choose(str(folders[1]))
    next(first)
    [refused] = handlers.choose(str(folders[1]))
    assert refused.code == "model_loading"
    list(first)
    for thread in threading.enumerate():
        if thread.name == "kev-model":
            thread.join()
    assert list(handlers.choose(str(folders[0])))[-1].key == "model.loaded"


def test_on_a_public_page_the_model_is_fixed(live):
    handlers = replace(ModelHandlers(live, live.config), is_public=True)
    assert [error.code for error in handlers.choose("embedded")] == ["model_fixed"]


@pytest.fixture
def hub(folders, tmp_path, monkeypatch):
    with local_hub({"owner/tiny": folders[1]}) as hub:
        use_hub(monkeypatch, hub, tmp_path / "hub")
        yield hub


def fresh(live, home):
    """Handlers whose conversions go to an empty home; without kernels, which would be compiled for it."""
    return ModelHandlers(live, replace(live.config, home=home, kernels="torch"))


def spec_of(kind, tmp_path):
    return f"gguf:{write_gguf(tmp_path / 'tiny.gguf')}" if kind == "gguf" else f"{kind}:owner/tiny"


@pytest.mark.parametrize("kind", ["hf", "modelscope", "gguf"])
def test_a_model_of_every_source_takes_over_with_its_progress(live, hub, tmp_path, kind):
    told = list(fresh(live, tmp_path).choose(spec_of(kind, tmp_path)))
    keys = [step.key for step in told]
    assert keys[0] == "model.checking"
    assert keys[-1] == "model.loaded"
    assert live.info.model == ("tiny" if kind == "gguf" else "owner/tiny")
    assert live.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens
    sized = [step for step in told if step.facts.get("needed") is not None]
    assert {step.facts["needed"] for step in sized} == {live.info.weight_bytes}


@pytest.mark.parametrize("kind", ["hf", "modelscope", "gguf"])
def test_what_does_not_fit_is_refused_before_it_is_fetched(live, hub, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(live.current, "free_bytes", lambda: 1000)
    [*_, refused] = fresh(live, tmp_path).choose(spec_of(kind, tmp_path))
    assert refused.code == "not_enough_space"
    assert hub.sent("model.safetensors") == 0
    assert not (tmp_path / "models").exists()


def test_a_load_is_cancelled_by_any_tab_and_the_old_model_answers_on(live, hub):
    """The hub holds back half of the weights, so the load is under way for certain."""
    hub.hold = threading.Event()
    handlers, before = ModelHandlers(live, live.config), live.current
    assert handlers.cancel() is None
    first = handlers.choose("hf:owner/tiny")
    # Until the weights' size is known, the total is that of the small files, which may all be there already.
    next(step for step in first if step.key == "model.downloading" and 0 < step.facts["done"] < step.facts["total"])
    [refused] = handlers.choose(str(hub.repositories["owner/tiny"]))
    assert refused.code == "model_loading"
    assert handlers.cancel().key == "model.cancelling"
    hub.hold.set()
    [*_, last] = first
    assert last.key == "model.cancelled"
    assert live.current is before
    assert live.ask([Question("A", "Hello", max_new_tokens=2)]).answers[0].output_tokens
    for language in LANGUAGES:
        assert "owner/tiny" in model_told(last, language)
    hub.hold = None
    assert list(handlers.choose("hf:owner/tiny"))[-1].key == "model.loaded"
