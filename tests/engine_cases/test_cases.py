"""Faults that other engines had, as cases: what goes in and what is right. Each is proven against the real code."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kev_engine import diagnose
from kev_engine.adapters.router import group
from kev_engine.config import EngineConfig
from kev_engine.isolation import mask
from kev_engine.isolation.layout import pack
from kev_engine.models.support import refusal
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, PlanMade, Step
from kev_engine.schema import Question
from tests.models.tiny import tiny_adapter, tiny_folder

HERE = Path(__file__)
CASES = {case["id"]: case for case in json.loads((HERE.parent / "cases.json").read_text(encoding="utf-8"))}
STEPS, SAMPLER = "tests/sampling/test_steps.py", "tests/sampling/test_sampler.py"
DETOKENIZE, STOP = "tests/text/test_detokenize.py", "tests/text/test_stop.py"
ADAPTERS, GGUF = "tests/runtime/test_adapters.py", "tests/models/test_gguf.py"
ELSEWHERE = {
    "BR-106": (ADAPTERS, "test_a_misspelt_name_names_the_nearest_and_the_others_are_answered"),
    "BR-108": (ADAPTERS, "test_samples_of_one_question_keep_its_adapter"),
    "BR-135": (STEPS, "test_br_135_the_order_of_temperature_and_top_p"),
    "BR-137": (SAMPLER, "test_br_137_each_row_keeps_its_own_settings"),
    "BR-139": (STEPS, "test_br_139_only_one_row_sets_top_k"),
    "BR-140": (STEPS, "test_br_140_penalties_belong_to_their_row_in_either_order"),
    "BR-141": (STEPS, "test_br_141_only_a_rows_own_history_is_penalised"),
    "BR-143": (DETOKENIZE, "test_characters_over_several_tokens"),
    "BR-145": (DETOKENIZE, "test_characters_over_several_tokens"),
    "BR-147": (DETOKENIZE, "test_characters_over_several_tokens"),
    "BR-148": (DETOKENIZE, "test_characters_over_several_tokens"),
    "BR-149": (DETOKENIZE, "test_leading_spaces_of_pieces"),
    "BR-151": (STOP, "test_pieces"),
    "BR-152": (STOP, "test_pieces"),
    "BR-153": (STOP, "test_pieces"),
    "BR-155": (STOP, "test_pieces"),
    "BR-158": (GGUF, "test_unknown_pre_tokenizer_is_warned_of_and_compared"),
    "BR-160": (GGUF, "test_a_special_token_is_one_id_though_the_file_marks_none"),
}
"""Cases whose values stand in a test beside the code they are about: its file and name."""
ROOT = HERE.parents[2]


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}


def test_every_case_is_proven_in_exactly_one_place():
    here = {f"BR-{name.split('_')[2]}" for name in names_in(HERE) if name.startswith("test_br_")}
    assert here.isdisjoint(ELSEWHERE)
    assert here | set(ELSEWHERE) == set(CASES)
    for case_id, (file, name) in ELSEWHERE.items():
        assert name in names_in(ROOT / file), case_id
        text = (ROOT / file).read_text(encoding="utf-8")
        assert case_id in text or case_id.lower().replace("-", "_") in text, case_id


def case(case_id: str) -> tuple[dict, dict]:
    return CASES[case_id]["input"], CASES[case_id]["right"]


def ids(tokens, name: str = "q", new: int = 4, **fields) -> Question:
    return Question(name, prompt_token_ids=tuple(tokens), max_new_tokens=new, ignore_eos=True, **fields)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def adapters(tmp_path_factory) -> list[str]:
    return [str(tiny_adapter(tmp_path_factory.mktemp("adapter"), seed)) for seed in range(2)]


def started(folder: Path, **settings) -> Engine:
    return Engine(EngineConfig(**{"model": str(folder), "kv_budget_bytes": 1 << 20} | settings), check=True)


@pytest.fixture(scope="module")
def engine(folder, adapters):
    with started(folder, adapters={"a": adapters[0], "b": adapters[1]}) as engine:
        yield engine


def prompt_logprobs(engine: Engine, prompts: list[list[int]]) -> list[list[float]]:
    asked = [ids(tokens, f"q{index}", 1, prompt_logprobs=True) for index, tokens in enumerate(prompts)]
    return [[token.logprob for token in answer.prompt_logprobs[1:]] for answer in engine.ask(asked).answers]


def test_br_003_copies_of_a_segment_get_the_logits_of_the_first(engine):
    given, right = case("BR-003")
    layout = pack(given["lengths"])
    assert layout.position_ids.tolist() == given["position_ids"]
    assert mask.count_allowed(layout) == right["allowed_cells"]
    assert mask.count_allowed(pack([sum(given["lengths"])])) == right["causal_cells"]
    first, *others = prompt_logprobs(engine, [given["segment_ids"]] * given["copies"])
    for copy in others:
        assert copy == pytest.approx(first, abs=right["max_abs_logit_difference_fp32"])


def test_br_004_the_packed_loss_is_the_sum_of_the_separate_losses(engine):
    given, right = case("BR-004")
    packed = prompt_logprobs(engine, given["segments"])
    separate = [prompt_logprobs(engine, [segment])[0] for segment in given["segments"]]
    total = sum(map(sum, packed))
    assert total == pytest.approx(sum(map(sum, separate)), rel=right["relative_tolerance_half_precision"])
    lengths = [len(segment) for segment in given["segments"]]
    report = diagnose({
        "lengths": lengths, "position_ids": given["position_ids"], "attention_mask": {"tril": sum(lengths)},
        "mask_meaning": "keep", "mask_dtype": "bool", "consumer": "sdpa",
    })
    [leak] = [finding for finding in report.findings if finding.code == "CROSS_SEGMENT_LEAK"]
    assert leak.count == right["naive_leaking_cells"]


def test_br_009_a_model_with_recurrent_layers_is_refused():
    given, right = case("BR-009")
    assert right["packable"] is False
    config = transformers.Qwen3NextConfig(num_hidden_layers=4, layer_types=given["layer_types"])
    assert "recurrent" in refusal(config)


def test_br_091_an_adapter_that_cannot_teach_the_stop_token_is_warned_of(folder, tmp_path):
    given, right = case("BR-091")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.embed_tokens.weight"
    stop, reserved = 2, 300
    weights[name][stop] = weights[name][reserved]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    adapter = tiny_adapter(tmp_path / "adapter", 0)
    assert json.loads((adapter / "adapter_config.json").read_text())["target_modules"] == given["lora_targets"]
    with started(tmp_path) as engine:
        info = engine.load_adapter("tuned", str(adapter))
    assert bool(info.warnings) is right["warning"]
    assert f"token {stop}," in info.warnings[-1]
    assert "stop strings" in info.warnings[-1]
    assert "embedding rows" in info.warnings[-1]


def test_br_091_a_trained_stop_token_is_not(engine):
    assert engine.adapters.info("a").warnings == ()


def test_br_110_runs_of_one_adapter_are_counted_in_tokens():
    given, right = case("BR-110")
    numbers = {name: index + 1 for index, name in enumerate("ab")}
    ids_of_tokens = np.repeat([numbers[name] for name in given["adapters"]], given["lengths"]).astype(np.int32)
    columns = {number: slice(8 * number - 8, 8 * number) for number in numbers.values()}
    grouping = group(ids_of_tokens, columns, 16, torch.device("cpu"), long_run=1)
    assert grouping.num_rows == right["total_tokens"]
    names = {8 * number - 8: name for name, number in numbers.items()}
    runs = [[names[piece.columns.start], piece.rows.stop - piece.rows.start] for piece in grouping.pieces]
    assert runs == right["runs"]
    assert [name for name, count in runs for _ in range(count)] == right["adapter_of_token"]


def test_br_120_one_prompt_under_two_adapters_and_none_never_hits(folder, adapters):
    given, right = case("BR-120")
    asked = [ids(item["ids"] + [9], adapter=item["adapter"]) for item in given["requests"]]
    with started(folder, adapters={"a": adapters[0], "b": adapters[1]}) as engine:
        answers = [engine.ask([question]).answers[0] for question in asked]
        assert sum(answer.cached_tokens > 0 for answer in answers) == right["hits"]
        assert len(engine._worker.scheduler.cache._entries) == right["distinct_keys"]
        again = [engine.ask([question]).answers[0] for question in asked]
    assert [answer.cached_tokens for answer in again] == [16, 16, 16], "the test can hit"
    assert [answer.token_ids for answer in again] == [answer.token_ids for answer in answers]


def test_br_122_an_adapter_reloaded_under_its_old_name_misses(folder, adapters):
    given, right = case("BR-122")
    contents = dict(zip(["aa", "bb"], adapters, strict=True))
    hits = []
    with started(folder) as engine:
        for step in given["steps"]:
            if "load" in step:
                engine.load_adapter(step["load"], contents[step["sha"]])
            else:
                [answer] = engine.ask([ids(step["run"] + [9], adapter=step["adapter"])]).answers
                hits.append(int(answer.cached_tokens > 0))
    assert hits == right["hits"]


def test_br_124_the_same_tokens_at_another_offset_have_other_keys(folder):
    """The first layer's keys depend on token and position alone, so only the rotation can tell them apart."""
    given, right = case("BR-124")
    near, far = given["calls"]
    tokens = list(range(20, 20 + near["len"]))
    with started(folder, prefix_cache_bytes=0) as engine:
        keys, positions = [], []
        for call in (near, far):
            prompt = [*range(5, 5 + call["offset"]), *tokens]
            steps = [event for event in engine.stream([ids(prompt, new=1)]) if isinstance(event, Step)]
            plan = steps[0].plan
            positions.append(plan.position_ids[call["offset"] :].tolist())
            slots = torch.from_numpy(plan.slot_mapping[call["offset"] :])
            keys.append(engine._worker.storage.keys[0][slots].clone())
    assert positions == right["positions"]
    assert torch.allclose(*keys) is right["results_equal"]
    assert torch.allclose(keys[0].norm(dim=-1), keys[1].norm(dim=-1)), "rotated, and nothing else"


def test_br_125_a_stored_prefix_and_what_is_fed_make_up_the_prompt(folder):
    given, right = case("BR-125")
    question = ids(range(5, 5 + given["prompt_len"]))
    with started(folder, block_size=1) as engine:
        [cold] = engine.ask([question]).answers
        events = list(engine.stream([question]))
    plan = next(event for event in events if isinstance(event, Step)).plan
    [answer] = [event.answer for event in events if isinstance(event, Finished)]
    assert answer.cached_tokens == given["cached_kv"]
    assert plan.position_ids.tolist() == right["gap"]
    assert plan.chunks[0].start == right["remaining_from"] == right["first_fed_position"]
    assert answer.cached_tokens + plan.num_tokens == given["prompt_len"]
    assert answer.token_ids == cold.token_ids


@pytest.mark.model
def test_br_127_a_session_whose_blocks_were_evicted_resumes_as_a_cold_one(embedded_home):
    given, right = case("BR-127")
    first, second = (Question(name, text, max_new_tokens=8) for name, text in given["sessions"].items())
    with Engine(EngineConfig(home=embedded_home, kv_budget_bytes=5 << 20), check=True) as engine:
        cold, warm = (engine.ask([first]).answers[0] for _ in range(2))
        for index in range(3):
            engine.ask([second, ids(range(100 * index + 100, 100 * index + 140), "filler")])
        [resumed] = engine.ask([first]).answers
    assert cold.cached_tokens <= resumed.cached_tokens < warm.cached_tokens, "only the template is left"
    assert (resumed.token_ids == cold.token_ids) is right["resumed_equals_cold_run"]
    assert right["forbidden_text"] not in resumed.text


@pytest.mark.parametrize("cache", [0, None], ids=["off", "on"])
def test_br_129_the_same_short_request_stays_the_same(folder, cache):
    given, right = case("BR-129")
    plans, answers = [], []
    with started(folder, prefix_cache_bytes=cache, block_size=4) as engine:
        for text in given["requests"]:
            for event in engine.stream([Question("q", text, max_new_tokens=6)]):
                if isinstance(event, PlanMade):
                    plans.append(event.layout)
                elif isinstance(event, Finished):
                    answers.append(event.answer)
    assert (len({answer.prompt_tokens for answer in answers}) == 1) is right["prompt_tokens_equal"]
    assert [layout.position_starts[0] for layout in plans] == right["start_positions"]
    assert (len({answer.token_ids for answer in answers}) == 1) is right["answers_equal"]
    assert any(answer.cached_tokens for answer in answers) is (cache is None)


def test_br_131_answers_come_back_by_request_and_not_by_finishing_time(engine):
    given, right = case("BR-131")
    asked = [
        ids(range(5 + index, 10 + index), name, 2 + 2 * given["finish_order"].index(index))
        for index, name in enumerate(given["inputs"])
    ]
    finished = [event.answer.question_id for event in engine.stream(asked) if isinstance(event, Finished)]
    assert finished == [given["inputs"][index] for index in given["finish_order"]]
    assert [answer.question_id for answer in engine.ask(asked).answers] == right["returned"]


def test_br_133_two_hundred_questions_get_their_own_answers(folder):
    """Each is held to its own number, so its text says whose answer it is."""
    given, right = case("BR-133")
    asked = [
        Question(f"q{index}", text, choices=(text.rsplit(" ", 1)[1],)) for index, text in enumerate(given["inputs"])
    ]
    with started(folder, kv_budget_bytes=320 << 10) as engine:
        run = engine.ask(asked)
    assert [int(answer.text) for answer in run.answers] == right["permutation"]
    assert max(run.stats.sequences_per_forward) < len(asked), "they had to wait for each other"


def test_br_161_branches_on_a_shared_prefix_read_it_and_not_each_other():
    given, right = case("BR-161")
    layout = pack([end - start for start, end in given["segments"]], given["parents"])
    assert [list(interval) for interval in layout.intervals] == given["segments"]
    assert layout.position_ids.tolist() == right["position_ids"]
    assert [[list(run) for run in row] for row in mask.runs(layout)] == right["keys_of_row"]
    allowed = mask.dense(layout)
    assert mask.count_allowed(layout) == allowed.sum() == right["allowed_cells"]
    causal = np.tril(np.ones_like(allowed))
    assert causal.sum() == right["causal_cells"]
    assert (causal & ~allowed).sum() == right["hidden_sibling_cells"]
