"""Adapters in a working engine: many through few places, loaded, replaced, renamed and unloaded while runs go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from kev_engine import Answer, Engine, EngineConfig, Finished, Question, SamplingParams, SharedContext, Step
from kev_engine.errors import AdapterRefused, UnknownAdapter
from kev_engine.runtime.model_runner import ModelRunner
from tests.models.tiny import tiny_folder
from tests.models.tiny_adapter import write_adapter

NUM_ADAPTERS, POOL_SIZE = 50, 4
RANKS = (1, 4, 8, 12)
PROMPTS = ("Who?", "the quick brown fox", "jumps over the lazy dog and then", "answer")
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("adapters")
    return [write_adapter(home / str(k), seed=k, rank=RANKS[k % len(RANKS)]) for k in range(NUM_ADAPTERS)]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"))


def start(model_folder: Path, pool_size: int = POOL_SIZE) -> Engine:
    config = EngineConfig(model=str(model_folder), threads=1, kv_budget_bytes=1 << 22, adapter_pool_size=pool_size)
    return Engine(config, check=True)


@pytest.fixture
def engine(model_folder: Path) -> Iterator[Engine]:
    with start(model_folder) as engine:
        yield engine


def question(k: int | str, adapter: str | None, prompt: str = "Who?", new_tokens: int = 4, **more: Any) -> Question:
    return Question(id=str(k), question=prompt, adapter=adapter, max_new_tokens=new_tokens, sampling=GREEDY, **more)


@pytest.fixture(scope="module")
def alone(model_folder: Path, folders: list[Path]) -> dict[tuple[int | None, str], tuple[int, ...]]:
    """What each adapter (None: the base) answers to each prompt, alone in an engine that has room for one only."""
    wanted: dict[tuple[int | None, str], tuple[int, ...]] = {}
    with start(model_folder, pool_size=1) as engine:
        for k in (None, *range(NUM_ADAPTERS)):
            if k is not None:
                engine.load_adapter("only", folders[k])
            run = engine.ask([question(prompt, None if k is None else "only", prompt) for prompt in PROMPTS])
            wanted |= {(k, answer.question_id): answer.token_ids for answer in run.answers}
    assert len(set(wanted.values())) > NUM_ADAPTERS, "the adapters must be told apart by what they answer"
    return wanted


def test_fifty_adapters_rotate_through_four_places_while_runs_go_on(engine, folders, alone):
    for k, folder in enumerate(folders):
        engine.load_adapter(f"n{k}", folder)
    failures: list[BaseException] = []
    used: set[int] = set()

    def visitor(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(4):
                chosen = [None, *random.choice(NUM_ADAPTERS, 7, replace=False).tolist()]
                asked = [(k, PROMPTS[int(random.integers(len(PROMPTS)))]) for k in chosen]
                run = engine.ask([
                    question(f"{k}", None if k is None else f"n{k}", prompt) for k, prompt in asked
                ])
                for answer, (k, prompt) in zip(run.answers, asked, strict=True):
                    assert answer.token_ids == alone[k, prompt], (k, prompt)
                    assert answer.adapter_version == (None if k is None else engine.adapters.info(f"n{k}").version)
                used.update(k for k in chosen if k is not None)
                engine.adapters.check()
        except BaseException as error:
            failures.append(error)

    visitors = [threading.Thread(target=visitor, args=(seed,)) for seed in range(4)]
    for thread in visitors:
        thread.start()
    for thread in visitors:
        thread.join()
    assert failures == []
    assert len(used) > 3 * POOL_SIZE
    infos = engine.adapters.list()
    assert sum(info.is_resident for info in infos) == POOL_SIZE
    assert all(info.holds == 0 for info in infos)
    assert sum(info.uses for info in infos) == 4 * 4 * 7


def test_no_step_has_more_adapters_than_places_and_every_question_is_answered(engine, folders):
    for k in range(10):
        engine.load_adapter(f"n{k}", folders[k])
    steps, answers = [], []
    for event in engine.stream([question(k, f"n{k}", new_tokens=4 + k) for k in range(10)]):
        if isinstance(event, Step):
            steps.append(len(set(event.plan.adapter_ids.tolist()) - {0}))
        if isinstance(event, Finished):
            answers.append(event.answer)
    assert max(steps) == POOL_SIZE
    assert {answer.finish_reason for answer in answers} <= {"length", "stop"}
    assert len(answers) == 10


def read_until_tokens(stream: Any, count: int) -> None:
    for event in stream:
        if isinstance(event, Step) and event.index >= count:
            return


def last_answer(stream: Any) -> Answer:
    return next(event.answer for event in stream if isinstance(event, Finished))


LONG = 30


@pytest.mark.parametrize("change", ["replace", "unload", "rename"])
def test_a_run_keeps_the_version_it_started_with(engine, folders, change):
    engine.load_adapter("mine", folders[0])
    engine.load_adapter("other", folders[1])
    asked = question("q", "mine", new_tokens=LONG, ignore_eos=True)
    (wanted,) = engine.ask([asked]).answers
    (others,) = engine.ask([question("q", "other", new_tokens=LONG, ignore_eos=True)]).answers
    assert wanted.token_ids != others.token_ids
    stream = engine.stream([asked])
    read_until_tokens(stream, 5)
    if change == "replace":
        replaced = engine.load_adapter("mine", folders[1])
        assert replaced.version == others.adapter_version
    elif change == "unload":
        engine.adapters.unload("mine")
    else:
        engine.adapters.rename("mine", "yours")
    # Others run meanwhile and press the old version out of its place, if it can be pressed out at all.
    for k in range(2, 2 + 2 * POOL_SIZE):
        engine.load_adapter(f"n{k}", folders[k])
    engine.ask([question(k, f"n{k}", new_tokens=3) for k in range(2, 2 + 2 * POOL_SIZE)])
    answer = last_answer(stream)
    assert answer.token_ids == wanted.token_ids
    assert answer.adapter_version == wanted.adapter_version
    engine.adapters.check()
    (after,) = engine.ask([asked]).answers
    if change == "replace":
        assert after.token_ids == others.token_ids
        assert after.adapter_version == others.adapter_version
    else:
        assert after.error is not None
        assert "'mine' is not loaded" in after.error
    if change == "rename":
        (renamed,) = engine.ask([question("q", "yours", new_tokens=LONG, ignore_eos=True)]).answers
        assert renamed.token_ids == wanted.token_ids


def test_a_misspelt_name_names_the_nearest_and_the_others_are_answered(engine, folders):
    """BR-106: fr and de are loaded, fr and dee are asked for."""
    engine.load_adapter("fr", folders[0])
    engine.load_adapter("de", folders[1])
    good, bad = engine.ask([question("row 0", "fr"), question("row 1", "dee")]).answers
    assert good.error is None
    assert (bad.finish_reason, bad.token_ids, bad.adapter_version) == ("error", (), None)
    assert "adapter 'dee' is not loaded; did you mean 'de'?" in bad.error
    with pytest.raises(UnknownAdapter) as caught:
        engine.adapters.resolve("dee")
    assert caught.value.nearest == "de"


def test_samples_of_one_question_keep_its_adapter(engine, folders):
    """BR-108: two questions with three continuations each; every one has the adapter of its question."""
    engine.load_adapter("a", folders[0])
    engine.load_adapter("b", folders[1])
    asked = [question(name, name, new_tokens=5, n=3) for name in "ab"]
    decode = None
    for event in engine.stream(asked):
        if isinstance(event, Step) and event.plan.num_tokens == event.plan.num_sequences == 6:
            decode = decode if decode is not None else event.plan.adapter_ids.tolist()
    ids = {name: engine.adapters.info(name).adapter_id for name in "ab"}
    assert decode == [ids["a"]] * 3 + [ids["b"]] * 3


def test_a_shared_context_is_stored_once_for_each_adapter_that_reads_it(engine, folders):
    engine.load_adapter("a", folders[0])
    engine.load_adapter("b", folders[1])
    shared = SharedContext("story", "the quick brown fox jumps over the lazy dog and then the other dog answers ")
    names = ("a", "b", "a", None)
    together = engine.ask([question(k, name, shared="story") for k, name in enumerate(names)], [shared]).answers
    for answer, name in zip(together, names, strict=True):
        (single,) = engine.ask([question("q", name, shared="story")], [shared]).answers
        assert answer.token_ids == single.token_ids


def test_a_refused_adapter_changes_nothing_for_anybody(engine, folders, tmp_path):
    engine.load_adapter("mine", folders[0])
    (before,) = engine.ask([question("q", "mine")]).answers
    state = engine.adapters.list()
    wrong = write_adapter(tmp_path / "wrong", seed=1, rank=4, r=8)
    with pytest.raises(AdapterRefused, match="rank 4 but its configuration says 8"):
        engine.load_adapter("mine", wrong)
    assert engine.adapters.list() == state
    (after,) = engine.ask([question("q", "mine")]).answers
    assert after.token_ids == before.token_ids


def zeroed(folder: Path, half: str) -> Path:
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file({key: tensor * (f"lora_{half}" not in key) for key, tensor in tensors.items()},
              folder / "adapter_model.safetensors")
    return folder


def test_effects_tell_the_dead_from_the_living_in_one_mixed_pass_a_pool(engine, folders, tmp_path, monkeypatch):
    dead = {
        "zero B": (zeroed(write_adapter(tmp_path / "b", 1), "B"), "b"),
        "zero A": (zeroed(write_adapter(tmp_path / "a", 2), "A"), "zero"),
        "scale 0": (write_adapter(tmp_path / "s", 3, lora_alpha=0), "scale"),
    }
    for name, (folder, _) in dead.items():
        engine.load_adapter(name, folder)
    engine.load_adapter("weak", write_adapter(tmp_path / "weak", 5, strength=0.02))
    engine.load_adapter("strong", folders[1])
    forwards = []
    run = ModelRunner.run

    def noted(self, plan, *rest):
        forwards.append(plan)
        return run(self, plan, *rest)

    monkeypatch.setattr(ModelRunner, "run", noted)
    effects = {effect.name: effect for effect in engine.adapter_effects()}
    assert len(forwards) == 2, "five adapters, four places"
    assert all(len(set(plan.adapter_ids.tolist())) > 1 for plan in forwards)
    assert {name for name, effect in effects.items() if effect.is_dead} == dead.keys()
    for name, (_, flaw) in dead.items():
        assert effects[name].flaw == engine.adapters.info(name).flaw == flaw
        assert effects[name].changed == 0
        assert "changes nothing" in engine.adapters.info(name).warnings[0]
    assert 1e-3 < effects["weak"].max_abs < effects["strong"].max_abs
    assert effects["strong"].changed > 0
    assert effects["strong"].noise < 1e-4
    assert engine.adapter_effects(["weak"])[0].max_abs == pytest.approx(effects["weak"].max_abs, abs=1e-4)
    with pytest.raises(UnknownAdapter, match="did you mean 'weak'"):
        engine.adapter_effects(["wake"])
    assert all(info.holds == 0 for info in engine.adapters.list())


def test_the_effect_is_how_far_a_merged_model_is_from_the_base(engine, model_folder, folders):
    engine.load_adapter("a", folders[0])
    (effect,) = engine.adapter_effects(["a"], prompt="Who?")
    taken = engine._take([question("q", "a", "Who?", new_tokens=1)], ())
    ids, version = torch.tensor([taken.stories[0].sequence.tokens]), taken.held[0]
    engine._intake.release(taken)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).requires_grad_(False)
    base = model(input_ids=ids).logits[0]
    for name, pair in version.weights.pairs.items():
        model.get_submodule(name).weight += pair.b @ pair.a * pair.scale
    merged = model(input_ids=ids).logits[0]
    assert effect.max_abs == pytest.approx(float((merged - base).abs().max()), abs=1e-4)
    assert effect.changed == pytest.approx(float((merged.argmax(-1) != base.argmax(-1)).float().mean()))
    assert effect.version == engine.adapters.info("a").version


def test_without_adapters_there_is_nothing_to_measure(engine):
    assert engine.adapter_effects() == ()
