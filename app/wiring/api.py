"""The API: four endpoints by name, which are also the MCP tools. Everything else of the page is private."""

from __future__ import annotations

import gradio as gr

from app.handlers.api import ApiHandlers, told

ENDPOINTS = {"run": 8, "audit": 1, "analyze_mask": 2, "tokenize": 4}
"""How many calls of each may be at work at once; others wait in the page's queue."""


def wire(handlers: ApiHandlers) -> None:
    """Called inside the Blocks."""
    for name, at_once in ENDPOINTS.items():
        gr.api(told(getattr(handlers, name)), api_name=name, concurrency_limit=at_once)
