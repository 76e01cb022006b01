"""The workbench: a Gradio page over the engine's public names. It never imports torch."""

import os

# Before gradio is imported: no statistics leave this machine.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from app.stubs import without_stub_files

with without_stub_files():
    from app.build import build_app, page_options

__all__ = ["build_app", "page_options"]
