"""The adapters tab on a real engine: every action, every mistake in its place, nothing for visitors to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import adapters_form
from app.adapters_view import BASE_ID, AdaptersView
from app.handlers.adapters import AdapterHandlers
from app.i18n import EN, LANGUAGES, ZH, say
from app.render import adapter_table
from app.render.difference import difference
from app.render.mask import TEXT_BORDER
from app.session import Session
from kev_engine import Engine, EngineConfig, InputError
from tests.app.test_render import HOSTILE
from tests.models.tiny import tiny_folder
from tests.models.tiny_adapter import write_adapter

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"), "llama")
    config = EngineConfig(model=str(folder), threads=1, kv_budget_bytes=2**22, home=tmp_path_factory.mktemp("home"))
    with Engine(config) as engine:
        yield engine


@pytest.fixture
def handlers(engine: Engine, folder: Path) -> Iterator[AdapterHandlers]:
    """With one adapter, `one`."""
    engine.load_adapter("one", folder)
    yield AdapterHandlers(engine)
    for name in engine.adapters.names():
        engine.adapters.unload(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("one") / "one", seed=1, rank=4)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("other") / "other", seed=2, rank=8)


@pytest.fixture
def session() -> Session:
    return Session("preset.secrets")


def last(changes):
    *_, change = changes
    return change


def test_a_folder_an_archive_and_loose_files_are_added_under_their_own_names(handlers, session, other, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", other)
    loose = [str(other / name) for name in (CONFIG, WEIGHTS)]
    for given_name, source, uploads, name in (
        ("", str(other), [], "other"), ("", "", [archive], "zipped"), ("mine", "", loose, "mine"),
    ):
        screen = last(handlers.add(session, given_name, source, uploads))
        assert not session.adapters.has_failed, screen["told"]
        assert f"“{name}”" in screen["told"]
        assert f'data-name="{name}"' in screen["table"]
    versions = {handlers.engine.adapters.info(name).version for name in ("other", "zipped", "mine")}
    assert len(versions) == 1
    assert versions.pop() in screen["table"]


@pytest.mark.parametrize(("name", "source", "uploads", "key"), [
    ("", "", [], "error.adapter_source"), ("x", "/some/where", ["a.zip"], "error.adapter_source"),
    ("", "", [f"/tmp/1/{CONFIG}", f"/tmp/2/{WEIGHTS}"], "error.adapter_name"),
    ("one", "/some/where", [], "error.adapter_taken"), ("", "hf:owner/one@v2", [], "error.adapter_taken"),
])
def test_a_mistake_in_the_form_is_told_there_and_nothing_is_loaded(
    handlers, session, name, source, uploads, key
):
    before = handlers.engine.adapters.list()
    for language in LANGUAGES:
        session.language = language
        screen = last(handlers.add(session, name, source, uploads))
        assert 'class="mistake"' in screen["told"]
        assert say(language, key, name="one").split("“")[0] in screen["told"]
        assert screen["said"] == ""
    assert handlers.engine.adapters.list() == before


def test_a_refusal_is_told_in_both_languages(handlers, session, tmp_path):
    wrong = write_adapter(tmp_path / "wrong", 3, use_dora=True)
    told = last(handlers.add(session, "", str(wrong), []))["told"]
    assert "it is a DoRA adapter" in told
    told = handlers.speak(session, ZH)["told"]
    assert "适配器“wrong”被拒绝：这是 DoRA 适配器" in told
    assert "wrong" not in handlers.engine.adapters.names()


def test_a_name_is_exchanged_only_on_purpose(handlers, session, folder, other):
    before = handlers.engine.adapters.info("one").version
    last(handlers.add(session, "one", str(other), []))
    assert session.adapters.has_failed
    screen = last(handlers.add(session, "one", str(other), [], replacing="one"))
    after = handlers.engine.adapters.info("one").version
    assert after != before
    assert f"“one” is now version {after}" in screen["told"]


def test_rename_and_unload(handlers, session, other):
    handlers.engine.load_adapter("two", other)
    assert "already" in handlers.rename(session, "one", " two ")["said"]
    assert "needs a name" in handlers.rename(session, "one", " ")["said"]
    assert "did you mean “one”" in handlers.rename(session, "oen", "three")["said"]
    assert handlers.engine.adapters.names() == ("one", "two")
    assert "“one” is now called “three”" in handlers.rename(session, "one", " three ")["said"]
    assert handlers.rename(session, "three", "three")["said"] == ""
    held = handlers.engine.adapters.acquire("two")
    assert "1 running answer keeps it to its end" in handlers.unload(session, "two")["said"]
    handlers.engine.adapters.release(held)
    assert "not loaded" in handlers.unload(session, "two")["said"]
    screen = handlers.unload(session, "three")
    assert "Unloaded “three”" in screen["said"]
    assert say(EN, "adapters.none") in screen["table"]


def test_what_a_user_should_know_stands_beside_the_loaded_adapter(handlers, session, tmp_path):
    dead = write_adapter(tmp_path / "dead", 4, lora_alpha=0)
    screen = last(handlers.add(session, "", str(dead), []))
    assert say(EN, "adapters.warn.flaw.scale") in screen["told"]
    assert "dead:" in screen["table"]
    assert "scale 0" in screen["table"]


def test_effects_fill_the_table(handlers, session, tmp_path):
    handlers.engine.load_adapter("dead", write_adapter(tmp_path / "dead", 4, lora_alpha=0))
    before = handlers.screen(session)["table"]
    screens = list(handlers.effects(session))
    assert say(EN, "adapters.measuring") in screens[0]["said"].replace("&#x27;", "'")
    assert "Measured 2" in screens[-1]["said"]
    assert "; 1 change" in screens[-1]["said"]
    assert before != screens[-1]["table"]
    assert "%" in screens[-1]["table"]


def test_one_question_under_the_base_and_every_adapter_in_one_pass(handlers, session, other):
    handlers.engine.load_adapter("two", other)
    screens = list(handlers.compare(session, "the quick brown fox", "8"))
    run = session.adapters.compared
    assert list(run.cards) == [BASE_ID, "one", "two"]
    assert run.run.stats.sequences_per_forward[0] == 3
    assert session.comparing is None
    final = {}
    for screen in screens:
        final |= screen
    assert final["answers"].count("<article") == 3
    assert "<mark>" in final["answers"]
    assert "words differ" in final["answers"]
    story = json.loads(final["picture"])
    assert [part["adapter"] for part in story["segments"]] == [None, "one", "two"]
    assert [part["name"] for part in story["segments"]] == ["base", "one", "two"]
    colours = [part["voice"] for part in story["segments"]]
    assert colours[0] == -1
    assert len(set(colours)) == 3
    counts = [text.count(TEXT_BORDER) + 1 for text in json.loads(final["texts"])]
    assert counts == [part["prompt"] for part in story["segments"]]
    assert "基座" in handlers.speak(session, ZH)["answers"]


def test_the_picture_is_of_the_run_that_started_last(handlers, session):
    from app.board import CardValues, board
    from app.handlers.run import RunHandlers

    list(handlers.compare(session, "Who?", "2"))
    assert len(json.loads(handlers.screen(session)["picture"])["segments"]) == 2
    cards = board((CardValues("Who?", adapter="one", max_new_tokens="2", temperature="0"),))
    list(RunHandlers(handlers.engine).run(session, cards))
    (segment,) = json.loads(handlers.screen(session)["picture"])["segments"]
    assert (segment["name"], segment["adapter"]) == ("one", "one")
    list(handlers.compare(session, "Who?", "2"))
    assert len(json.loads(handlers.screen(session)["picture"])["segments"]) == 2


@pytest.mark.parametrize(("question", "count", "words"), [
    (" ", "8", "empty"), ("Who?", "many", "many"), ("word " * 400, "8", "holds"),
])
def test_a_question_that_cannot_be_compared_says_why(handlers, session, question, count, words):
    final = {}
    for change in handlers.compare(session, question, count):
        final |= change
    assert "mistake" in final["answers"]
    assert words in final["answers"]
    assert session.comparing is None


def test_a_stopped_comparison_and_a_closed_tab_free_the_engine(handlers, session):
    comparing = handlers.compare(session, "Who?", "300")
    for _ in comparing:
        handlers.stop(session)
    assert session.adapters.compared.cards["one"].status in ("cancelled", "stop", "length")
    comparing = handlers.compare(session, "Who?", "300")
    next(comparing), next(comparing)
    session.leave()
    comparing.close()
    assert all(info.holds == 0 for info in wait_until_idle(handlers.engine))


def wait_until_idle(engine):
    from kev_engine import Question

    engine.ask([Question("after", "Who?", max_new_tokens=1)])
    return engine.adapters.list()


def test_a_visitor_of_a_public_page_changes_nothing_and_reads_no_path(engine, folder, session):
    engine.load_adapter("one", folder)
    public = AdapterHandlers(engine, is_public=True)
    before = engine.adapters.list()
    fixed = say(EN, "error.adapters_fixed")
    assert fixed in last(public.add(session, "x", str(folder), []))["told"]
    assert fixed in last(public.add(session, "x", "", [str(folder / CONFIG)]))["told"]
    assert fixed in last(public.add(session, "one", str(folder), [], replacing="one"))["told"]
    assert fixed in public.rename(session, "one", "two")["said"]
    assert fixed in public.unload(session, "one")["said"]
    assert engine.adapters.list() == before
    screen = public.screen(session)
    assert "data-act" not in screen["table"]
    assert say(EN, "adapters.fixed") in screen["head"]
    long = list(public.compare(session, "Who?", "300"))
    assert "256" in long[-1]["answers"] or "256" in long[0]["answers"]
    engine.adapters.unload("one")


def test_hostile_names_are_text(engine, folder, session):
    name = " ".join(HOSTILE)
    engine.load_adapter(name, folder)
    for screen in (AdapterHandlers(engine).screen(session), *AdapterHandlers(engine).compare(session, name, "2")):
        for place in {"table", "answers", "told", "said"} & screen.keys():
            assert "<img" not in screen[place]
            assert "${" not in screen[place]
    engine.adapters.unload(name)


# The form, the table, the difference ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "uploads", "name"), [
    ("hf:owner/lora-1.5", [], "lora-1.5"), ("modelscope:owner/lora@v2", [], "lora"), ("/a/b/pirate", [], "pirate"),
    ("/a/b/pirate.zip", [], "pirate"), ("./pirate/", [], "pirate"), ("", ["/tmp/x/pirate.zip"], "pirate"),
])
def test_a_name_is_taken_from_the_source(source, uploads, name):
    assert adapters_form.parse("", source, uploads, ()).name == name
    assert adapters_form.parse(" mine ", source, uploads, ()).name == "mine"
    with pytest.raises(InputError):
        adapters_form.parse("", source, uploads, (name,))


def test_an_empty_table_says_what_answers_then():
    for language in LANGUAGES:
        assert say(language, "adapters.none") in adapter_table((), AdaptersView(), 4, False, language)


def marked(text: str, other: str) -> str:
    return "".join(f"[{part}]" if is_new else part for part, is_new in difference(text, other).stretches)


@pytest.mark.parametrize(("text", "other", "wanted"), [
    ("", "", ""), ("a b", "", "[a b]"), ("", "a b", ""), ("a b c", "a b c", "a b c"),
    ("the red big fox", "the fox", "the [red big] fox"), ("one, two!", "one two", "one[,] two[!]"),
    ("今天下雨", "今天晴", "今天[下雨]"), ("go 北京 now", "go 上海 now", "go [北京] now"), ("a\n\nb", "a b", "a\n\nb"),
])
def test_the_words_that_the_other_text_lacks_are_marked(text, other, wanted):
    assert marked(text, other) == wanted


texts = st.text(st.sampled_from("ab,. \n今天é"), max_size=40)


@settings(deadline=None, derandomize=True)
@given(texts, texts)
def test_a_difference_loses_no_character_and_leaves_a_common_subsequence(text, other):
    found = difference(text, other)
    assert "".join(part for part, _ in found.stretches) == text
    rest = iter("".join(other.split()))
    kept = "".join(part for part, is_new in found.stretches if not is_new)
    assert all(character in rest for character in "".join(kept.split()))
    assert 0 <= found.num_new <= found.num_words
    assert difference(text, text).num_new == 0
