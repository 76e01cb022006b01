"""While the page is imported Gradio finds no source of its own classes, and everybody else finds theirs."""

from __future__ import annotations

import inspect

import gradio
import pytest

from app.session import Session
from app.stubs import without_stub_files


def test_only_gradio_writes_no_stub_files():
    with without_stub_files():
        with pytest.raises(OSError, match="stub"):
            inspect.getfile(gradio.Textbox)
        assert inspect.getfile(Session).endswith("session.py")
    assert inspect.getfile(gradio.Textbox).endswith("textbox.py")
