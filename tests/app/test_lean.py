"""While the page is imported Gradio finds no source of its own classes, and everybody else finds theirs."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import ssl
import sys
from types import ModuleType

import gradio
import jinja2
import pytest
from gradio.queueing import Queue

from app import lean
from app.lean import lean_import
from app.session import Session


def test_only_gradio_writes_no_stub_files():
    with lean_import():
        with pytest.raises(OSError, match="stub"):
            inspect.getfile(gradio.Textbox)
        assert inspect.getfile(Session).endswith("session.py")
    assert inspect.getfile(gradio.Textbox).endswith("textbox.py")


def test_equal_documentation_is_compiled_once_and_says_what_it_said():
    text, usual = "What {{component}} does when {% if x %}asked{% else %}told{% endif %}.", jinja2.Template
    with lean_import():
        assert jinja2.Template(text) is jinja2.Template(text)
        assert jinja2.Template(text).render(component="Row") == usual(text).render(component="Row")
    assert jinja2.Template is usual


def test_clients_made_meanwhile_share_certificates():
    usual = ssl.create_default_context
    with lean_import():
        assert ssl.create_default_context() is ssl.create_default_context()
    assert ssl.create_default_context is usual


def test_a_module_is_deferred_until_something_of_it_is_used(tmp_path, monkeypatch):
    (tmp_path / "slow_tables.py").write_text("import sys\nsys.slow_tables_ran = True\nTable = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lean, "DEFERRED", "slow_tables")
    monkeypatch.setattr(sys, "slow_tables_ran", False, raising=False)
    with lean_import():
        module = importlib.import_module("slow_tables")
    assert not sys.slow_tables_ran
    assert module.Table is dict
    assert sys.slow_tables_ran
    assert type(module) is ModuleType
    del sys.modules["slow_tables"]


def test_no_statistics_are_computed_behind_events():
    async def queue_in_a_loop() -> Queue:  # outside of one it would make one of its own and leave it open
        return Queue(live_updates=False, concurrency_count=1, update_intervals=1, max_size=None, blocks=None)

    queue = asyncio.run(queue_in_a_loop())
    queue.events_recorded = 10
    record = {"function": "run", "status": "success", "process_time": 0.5, "time": 1.0, "session_hash": None}
    assert queue.compute_analytics_summary([record]) == {"functions": {}}
