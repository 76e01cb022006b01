"""What ends a step, or the thread itself, ends what took part in it and nothing else; nobody waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kev_engine.config import EngineConfig
from kev_engine.errors import EngineBusy, EngineClosed, EngineFailed
from kev_engine.native.layers import LayerKernel
from kev_engine.runtime import worker as worker_module
from kev_engine.runtime.engine import Engine
from kev_engine.runtime.events import Step
from kev_engine.runtime.reply import Reply
from kev_engine.runtime.worker import Job
from kev_engine.schema import Question, SamplingParams, SharedContext
from tests.models.tiny import tiny_adapter, tiny_folder

BLOCKS, BLOCK = 24, 16
SHARED = (SharedContext("fox", "The quick brown fox."),)
ASKED = (
    Question("adapted", prompt_token_ids=tuple(range(5, 45)), adapter="x", max_new_tokens=12, ignore_eos=True, n=2),
    Question("reader", "Who?", shared="fox", max_new_tokens=9, sampling=SamplingParams(temperature=1.0, seed=3)),
    Question("drafted", prompt_token_ids=(5, 6, 7) * 6, max_new_tokens=12, ignore_eos=True, draft=3),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("llama")))


def started(folder, **settings) -> Engine:
    bytes_per_token = 2 * 2 * 2 * 8 * 4
    config = {"model": folder, "kv_budget_bytes": BLOCKS * BLOCK * bytes_per_token} | settings
    return Engine(EngineConfig(**config), check=True)


@pytest.fixture(scope="module")
def engine(folder, tmp_path_factory):
    adapter = tiny_adapter(tmp_path_factory.mktemp("adapter"), 0)
    with started(folder, adapters={"x": str(adapter)}) as engine:
        yield engine


def long(name: str, new: int = 250) -> Question:
    return Question(name, prompt_token_ids=tuple(range(9, 49)), max_new_tokens=new, ignore_eos=True)


def essence(run) -> list[tuple[object, ...]]:
    return [(answer.question_id, answer.sample, answer.token_ids, answer.text) for answer in run.answers]


def nth_raises(call, error: BaseException, nth: int):
    """`call`, but its `nth` call raises."""
    calls = []

    def counted(*arguments, **named):
        calls.append(None)
        if len(calls) == nth:
            raise error
        return call(*arguments, **named)

    return counted


PLACES = {
    "planning": lambda engine: (engine._worker.scheduler, "next_step"),
    "the backend": lambda engine: (type(engine._runner.backend), "attend"),
    "adapters": lambda engine: (engine.adapters, "reside"),
    "drawing": lambda engine: (worker_module, "sample"),
    "text": lambda engine: (Reply, "take"),
}
ERRORS = (RuntimeError("out of luck"), MemoryError("out of memory"), SystemExit("out"), KeyboardInterrupt("out"))


@pytest.mark.parametrize(("place", "error"), [
    *(("the backend", error) for error in ERRORS), *((place, ERRORS[-1]) for place in PLACES if place != "the backend"),
])
def test_a_step_that_is_killed_ends_its_run_and_the_next_one_works(engine, monkeypatch, place, error):
    right = essence(engine.ask(ASKED, SHARED))
    target, name = PLACES[place](engine)
    for nth in (1, 4):
        with monkeypatch.context() as broken:
            broken.setattr(target, name, nth_raises(getattr(target, name), error, nth))
            with pytest.raises(EngineFailed, match=f"{type(error).__name__}: out") as failed:
                engine.ask(ASKED, SHARED)
        assert failed.value.__cause__ is error
        assert engine._worker.scheduler.is_idle
        assert engine._pool.num_used == 0
        assert engine.adapters.info("x").holds == 0
        assert essence(engine.ask(ASKED, SHARED)) == right


def test_a_step_that_is_killed_inside_a_layer_ends_its_run(kernels, engine, monkeypatch):
    right = essence(engine.ask(ASKED, SHARED))
    with monkeypatch.context() as broken:
        broken.setattr(LayerKernel, "decode", nth_raises(LayerKernel.decode, MemoryError("out of memory"), 3))
        with pytest.raises(EngineFailed, match="out of memory"):
            engine.ask(ASKED, SHARED)
    assert engine._pool.num_used == 0
    assert essence(engine.ask(ASKED, SHARED)) == right


def test_who_takes_no_part_in_the_step_goes_on(folder, monkeypatch):
    with started(folder, prefix_cache_bytes=0) as engine:
        [right] = engine.ask([long("waits", 180)]).answers
        first = engine.stream([long("runs")])
        for event in first:
            if isinstance(event, Step):
                break
        second = engine.stream([long("waits", 180)])
        backend = type(engine._runner.backend)
        monkeypatch.setattr(backend, "prepare", nth_raises(backend.prepare, RuntimeError("out"), 5))
        with pytest.raises(EngineFailed, match="out"):
            list(first)
        answers = [event.answer for event in second if hasattr(event, "answer")]
    assert [answer.token_ids for answer in answers] == [right.token_ids]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["a cancelled question", "a new run"])
def test_nobody_waits_for_a_thread_that_is_gone(folder, monkeypatch, place):
    """An error where none is foreseen: whoever waits is told, and whoever comes later."""
    with started(folder) as engine:
        worker = engine._worker
        target, name = (worker, "_cancel") if place == "a cancelled question" else (worker.scheduler, "submit")
        running = engine.stream([long("running")])
        for event in running:
            if isinstance(event, Step):
                break
        monkeypatch.setattr(target, name, nth_raises(getattr(target, name), RuntimeError("out"), 1))
        readers = [running]
        if name == "submit":
            readers.append(engine.stream([long("new")]))
        else:
            running.cancel("running")
        for reader in readers:
            with pytest.raises(EngineClosed):
                list(reader)
        for late in (lambda: engine.ask([long("late", 1)]), lambda: engine.audit([long("late", 1)])):
            with pytest.raises(EngineClosed):
                late()
        assert engine._pool.num_used == 0


def test_the_queue_is_bounded_whatever_the_worker_is_at(folder):
    """Twenty callers at once, while an audit or another job has the engine: as many as the queue holds are taken."""
    with started(folder, max_waiting=10) as engine:
        is_open = threading.Event()
        engine._worker.send(Job(is_open.wait, Future()))

        def ask(index: int):
            try:
                return engine.stream([long(f"q{index}", 2)])
            except EngineBusy as busy:
                return busy

        with ThreadPoolExecutor(20) as callers:
            results = list(callers.map(ask, range(20)))
        refused = [result for result in results if isinstance(result, EngineBusy)]
        assert [(busy.waiting, busy.limit) for busy in refused] == [(10, 10)] * 10
        is_open.set()
        for stream in results:
            if not isinstance(stream, EngineBusy):
                assert sum(hasattr(event, "answer") for event in stream) == 1
        assert len(engine.ask([long("next", 2)] * 1).answers) == 1
        assert engine._worker.num_waiting == 0
