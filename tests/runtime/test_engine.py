"""The whole route on real and tiny models: answers equal to `generate`, isolation, and what breaks it."""

import json
import queue
import time
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kev_engine.config import EngineConfig
from kev_engine.errors import EngineClosed, InvalidField, TooManyQuestions
from kev_engine.isolation.faults import FAULTS, fault_named
from kev_engine.models.sources import resolve
from kev_engine.runtime import worker
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Finished, PlanMade, Prefilling, Refused, RunFinished, Step, TextDelta
from kev_engine.schema import Question, SamplingParams, SharedContext
from tests.models.tiny import tiny_folder

# Attention without and with windows; every family by itself stands in test_families.
FAMILIES = ("llama", "gemma3")
CONTEXT = "The river Aral flows north for 412 kilometres, past the mill towns and out to the sea. "


def questions(count: int = 8, new_tokens: int = 8) -> list[Question]:
    return [
        Question(f"q{index}", f"What does sentence {index} say?", context=CONTEXT * (1 + index % 4),
                 max_new_tokens=new_tokens)
        for index in range(count)
    ]


@pytest.fixture(scope="module", params=FAMILIES)
def tiny_engine(request, tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp(request.param), request.param)
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20), check=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def right_answers(embedded_home, embedded_engine) -> list[list[int]]:
    """transformers' own answers to the eight questions, one alone at a time."""
    path = resolve("embedded", embedded_home).path
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return [greedy(model, tokenizer, embedded_engine, question) for question in questions()]


def greedy(model, tokenizer, engine: Engine, question: Question) -> list[int]:
    text = f"{question.context}\n\n{question.question}"
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    stop = sorted(engine._facts.stop_token_ids)
    out = model.generate(**ids, max_new_tokens=question.max_new_tokens, do_sample=False, eos_token_id=stop)
    return out[0, ids["input_ids"].shape[1] :].tolist()


@pytest.mark.model
@pytest.mark.parametrize(("backend", "count"), [("segment", 8), ("dense", 2)])
def test_questions_together_equal_generate_one_by_one(embedded_home, right_answers, backend, count):
    with Engine(EngineConfig(home=embedded_home, backend=backend, kv_budget_bytes=256 << 20), check=True) as engine:
        asked = questions(count)
        run = engine.ask(asked)
        assert [answer.question_id for answer in run.answers] == [question.id for question in asked]
        assert [list(answer.token_ids) for answer in run.answers] == right_answers[:count]
        assert run.stats.sequences_per_forward[0] == count, "all prompts enter in one forward"
        assert run.stats.tokens_per_forward[0] == sum(answer.prompt_tokens for answer in run.answers)
        assert run.stats.blocks_leaked == 0


def test_tiny_models_are_isolated(tiny_engine):
    verdict = tiny_engine.audit(questions(4, 6))
    assert verdict.isolated, verdict.questions
    assert all(proof.neighbour_max_abs == 0 and proof.poison_max_abs == 0 for proof in verdict.questions)
    assert verdict.foreign_cells > verdict.foreign_cells_allowed == 0


def test_foreign_cells_are_counted_from_the_executed_steps(tiny_engine):
    """By hand: two prompts of two tokens in one step; plain causal lets the second read all four cells of the first."""
    asked = [Question(name, prompt_token_ids=(5, 6), max_new_tokens=1) for name in "ab"]
    right = tiny_engine.audit(asked)
    assert (right.foreign_cells, right.foreign_cells_allowed, right.allowed_cells) == (8, 0, 6)
    assert tiny_engine.audit(asked, fault="ones-2d").foreign_cells_allowed == 4
    assert tiny_engine.audit(asked, fault="one-cell").foreign_cells_allowed == 1
    assert tiny_engine.audit(asked, fault="no-causal").foreign_cells_allowed == 0


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"adapter-shift", "no-reset"}))
def test_the_audit_sees_a_broken_mask(tiny_engine, fault):
    """The mutation test of the audit: each classic fault of the mask must be noticed."""
    verdict = tiny_engine.audit(questions(3, 4), fault=fault)
    assert not verdict.isolated
    assert json.loads(json.dumps(verdict.to_json(), allow_nan=False))["isolated"] is False


def test_an_endless_difference_is_a_number_of_strict_json(tiny_engine):
    verdict = tiny_engine.audit(questions(2, 2))
    endless = replace(verdict.questions[0], poison_max_abs=float("inf"))
    [told, _] = replace(verdict, questions=(endless, verdict.questions[1])).to_json()["questions"]
    assert json.loads(json.dumps(told, allow_nan=False))["poison_max_abs"] > 1e300


def test_positions_that_run_on_are_harmless_under_rope(tmp_path):
    with Engine(EngineConfig(model=str(tiny_folder(tmp_path, "llama")), kv_budget_bytes=1 << 20)) as engine:
        verdict = engine.audit(questions(2, 4), fault="no-reset")
    assert all(proof.alone_max_abs < 1e-3 for proof in verdict.questions)


def test_permuting_questions_permutes_answers(tiny_engine):
    asked = questions(5, 6)
    answers = {answer.question_id: answer.token_ids for answer in tiny_engine.ask(asked).answers}
    back = tiny_engine.ask(asked[::-1])
    assert [answer.question_id for answer in back.answers] == [question.id for question in asked[::-1]]
    assert {answer.question_id: answer.token_ids for answer in back.answers} == answers


def test_a_question_alone_answers_as_in_company(tiny_engine):
    asked = questions(5, 6)
    together = {answer.question_id: answer.token_ids for answer in tiny_engine.ask(asked).answers}
    for question in asked:
        assert tiny_engine.ask([question]).answers[0].token_ids == together[question.id]


def test_a_shared_context_gives_the_answers_of_the_whole_text(tiny_engine):
    shared = [SharedContext("river", CONTEXT * 2)]
    readers = [
        Question(f"r{index}", f"Question {index}?", shared="river", max_new_tokens=6, n=1 + index) for index in range(3)
    ]
    run = tiny_engine.ask(readers, shared)
    whole = tiny_engine.ask([
        Question(f"w{index}", f"Question {index}?", context=CONTEXT * 2, max_new_tokens=6) for index in range(3)
    ])
    for index, right in enumerate(whole.answers):
        mine = [answer for answer in run.answers if answer.question_id == f"r{index}"]
        assert len(mine) == 1 + index
        assert {answer.token_ids for answer in mine} == {right.token_ids}
    assert run.stats.blocks_leaked == 0


def test_equal_prompts_of_several_sampled_questions_are_stored_once(tiny_engine):
    """A sweep: the prompt at two temperatures is one segment with six readers; each answers as in a run of its own."""
    asked = [
        Question(name, "What does it say?", context=CONTEXT * 3, n=3, max_new_tokens=6,
                 sampling=SamplingParams(temperature=temperature, seed=5))
        for name, temperature in (("a", 0.5), ("b", 1.0))
    ]
    other = replace(asked[0], id="c", context=CONTEXT)
    events = list(tiny_engine.stream([*asked, other]))
    plan = events[0]
    assert [info.name for info in plan.segments if info.is_shared] == ["a", "c"]
    assert plan.layout.parents == (None, 0, 0, 0, 0, 0, 0, None, 7, 7, 7)
    together = {(event.answer.question_id, event.answer.sample): event.answer.token_ids
                for event in events if isinstance(event, Finished)}
    for question in (*asked, other):
        for answer in tiny_engine.ask([question]).answers:
            assert answer.token_ids == together[question.id, answer.sample]
    assert tiny_engine.audit([*asked, other]).isolated


def test_more_questions_than_memory_holds_wait_their_turn(tmp_path):
    folder = str(tiny_folder(tmp_path, "llama"))
    asked = questions(40, 4)
    with Engine(EngineConfig(model=folder, kv_budget_bytes=1 << 20), check=True) as engine:
        right = [answer.token_ids for answer in engine.ask(asked).answers]
    with Engine(EngineConfig(model=folder, kv_budget_bytes=320 << 10, token_budget=300), check=True) as engine:
        run = engine.ask(asked)
    assert [answer.token_ids for answer in run.answers] == right
    assert max(run.stats.sequences_per_forward) < 40
    assert run.stats.kv_bytes_peak <= run.stats.kv_bytes_budget


def test_the_events_of_a_stream_come_in_order(tiny_engine):
    events = list(tiny_engine.stream(questions(3, 5)))
    assert isinstance(events[0], PlanMade)
    assert isinstance(events[-1], RunFinished)
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.index for step in steps] == list(range(len(steps)))
    answers = {event.answer.question_id: event.answer for event in events if isinstance(event, Finished)}
    for question_id, answer in answers.items():
        deltas = [event for event in events if isinstance(event, TextDelta) and event.question_id == question_id]
        assert "".join(delta.text for delta in deltas) == answer.text
        assert tuple(token for delta in deltas for token in delta.token_ids) == answer.token_ids


def test_a_long_forward_tells_its_layers_and_no_other_does(tiny_engine, monkeypatch):
    """Its prompt tokens decide: neither a short prompt nor a decoded token tells anything."""
    monkeypatch.setattr(worker, "LAYERS_TOLD_SECONDS", 0)
    events = list(tiny_engine.stream([Question("q", prompt_token_ids=(5,) * worker.LONG_PREFILL,
                                               max_new_tokens=3, ignore_eos=True)]))
    told = [event for event in events if isinstance(event, Prefilling)]
    count = tiny_engine._shape.num_layers
    assert [(event.layer, event.num_layers) for event in told] == [(layer + 1, count) for layer in range(count)]
    [prefill, *decode] = [event for event in events if isinstance(event, Step)]
    assert len(decode) == 2
    assert all(event.plan is prefill.plan and event.segments == prefill.segments for event in told)
    assert events[1 : 1 + count] == told, "before the step and its first token"
    short = tiny_engine.stream([Question("q", prompt_token_ids=(6,) * (worker.LONG_PREFILL - 1),
                                         max_new_tokens=3)])
    assert not any(isinstance(event, Prefilling) for event in short)


def test_layers_are_told_only_so_often(tiny_engine, monkeypatch):
    monkeypatch.setattr(worker, "LAYERS_TOLD_SECONDS", 3600)
    events = tiny_engine.stream([Question("q", prompt_token_ids=(7,) * 300, max_new_tokens=1)])
    assert [event.layer for event in events if isinstance(event, Prefilling)] == [1]


def test_closing_a_stream_cancels_and_frees(tiny_engine):
    stream = tiny_engine.stream([Question("long", "Go on.", max_new_tokens=300, ignore_eos=True)])
    for event in stream:
        if isinstance(event, TextDelta):
            break
    stream.close()
    deadline = time.monotonic() + 30
    while tiny_engine._pool.num_used and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tiny_engine._pool.num_used == 0


def test_cancelling_one_question_leaves_the_others(tiny_engine):
    asked = [Question("stays", "Go on.", max_new_tokens=40, ignore_eos=True),
             Question("goes", "Go on.", max_new_tokens=300, ignore_eos=True)]
    stream = tiny_engine.stream(asked)
    reasons = {}
    for event in stream:
        if isinstance(event, TextDelta) and event.question_id == "goes":
            stream.cancel("goes")
        if isinstance(event, Finished):
            reasons[event.answer.question_id] = event.answer.finish_reason
    assert reasons == {"stays": "length", "goes": "cancelled"}


def test_a_bad_question_is_refused_and_the_others_answered(tiny_engine):
    asked = [
        Question("fine", "Hello?", max_new_tokens=3),
        Question("adapter", "Hello?", adapter="nobody", max_new_tokens=3),
        Question("long", "word " * 600, max_new_tokens=3),
        Question("shared", "Hello?", shared="nothing", max_new_tokens=3),
    ]
    answers = {answer.question_id: answer for answer in tiny_engine.ask(asked).answers}
    assert answers["fine"].finish_reason in ("stop", "length")
    for name, word in (("adapter", "nobody"), ("long", "tokens"), ("shared", "nothing")):
        assert answers[name].finish_reason == "error"
        assert name in answers[name].error
        assert word in answers[name].error


def test_a_run_that_makes_no_sense_is_refused_whole(tmp_path):
    config = EngineConfig(model=str(tiny_folder(tmp_path, "llama")), kv_budget_bytes=1 << 20, max_questions=2)
    with Engine(config) as engine:
        with pytest.raises(TooManyQuestions):
            engine.ask(questions(3))
        with pytest.raises(InvalidField, match="twice"):
            engine.ask([Question("a", "x"), Question("a", "y")])
    with pytest.raises(EngineClosed):
        engine.ask(questions(1))


def test_each_question_keeps_its_own_seed_and_temperature(tiny_engine):
    hot = SamplingParams(temperature=1.5, seed=7)
    asked = [Question("cold", "Tell me.", max_new_tokens=8),
             Question("hot", "Tell me.", sampling=hot, max_new_tokens=8),
             Question("same", "Tell me.", sampling=hot, max_new_tokens=8)]
    answers = {answer.question_id: answer for answer in tiny_engine.ask(asked).answers}
    alone = tiny_engine.ask([asked[1]]).answers[0]
    assert answers["hot"].token_ids == answers["same"].token_ids == alone.token_ids
    assert answers["cold"].sampling.temperature == 0


@pytest.mark.model
def test_adapters_of_one_run_are_told_apart_and_a_shift_is_seen(embedded_engine):
    asked = [
        Question(name or "base", "What is the capital of France?", adapter=name, max_new_tokens=8)
        for name in (None, "pirate", "terse", "json")
    ]
    texts = {answer.question_id: answer.text for answer in embedded_engine.ask(asked).answers}
    assert len(set(texts.values())) == 4, texts
    assert embedded_engine.audit(asked[:2], max_new_tokens=4).isolated
    assert not embedded_engine.audit(asked[:2], fault="adapter-shift", max_new_tokens=4).isolated


SECRET = " marzipan"


def secret_logprob(engine: Engine, context: str) -> float:
    """The log-probability that my story ends in the secret word, next to a neighbour with this context."""
    tokenizer = engine._tokenizer
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the secret word?"}], add_generation_prompt=True, return_dict=False)
    secret = tokenizer.encode(SECRET)
    mine = Question("mine", prompt_token_ids=[*prompt, *tokenizer.encode("The secret word is"), *secret],
                    max_new_tokens=1, prompt_logprobs=True)
    theirs = Question("theirs", "What is the secret word?", context=context, max_new_tokens=1)
    [_, answer] = engine.ask([theirs, mine]).answers
    return sum(item.logprob for item in answer.prompt_logprobs[-len(secret):])


@pytest.mark.model
def test_a_neighbours_secret_is_no_likelier_to_me(embedded_engine, monkeypatch):
    told = f"The secret word is{SECRET}. Remember: the secret word is{SECRET}."
    untold = "The harbour opens at nine. Remember: the harbour opens at nine."
    assert secret_logprob(embedded_engine, told) == pytest.approx(secret_logprob(embedded_engine, untold), abs=1e-3)
    # The same words under the classic leak: a mask of ones lets me read my neighbour, and the secret comes out.
    monkeypatch.setattr(embedded_engine._worker, "runner", embedded_engine._runner.dense(fault_named("ones-2d")))
    assert secret_logprob(embedded_engine, told) > secret_logprob(embedded_engine, untold) + 2


def test_refused_questions_are_told_in_the_stream(tiny_engine):
    events = list(tiny_engine.stream([Question("only", "Hello?", adapter="nobody")]))
    assert [type(event) for event in events] == [PlanMade, Refused, RunFinished]


def test_the_event_queue_is_left_empty(tiny_engine):
    stream = tiny_engine.stream(questions(1, 2))
    list(stream)
    with pytest.raises(queue.Empty):
        stream._run.events.get_nowait()
