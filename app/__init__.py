"""The workbench: a Gradio page over the engine's public names. It never imports torch."""

import os
import sys

# Before gradio is imported: no statistics leave this machine, and none are computed behind every event.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(sys.maxsize)

from app.lean import lean_import

with lean_import():
    from app.build import build_app, page_options

__all__ = ["build_app", "page_options"]
