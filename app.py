"""Starts the workbench: arguments, the engine, the page. Also the entry of a Hugging Face Space."""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kev_engine import Engine, EngineConfig

DEMO_ADAPTERS = Path(__file__).parent / "assets" / "adapters"
EMBEDDED = "embedded"


def demo_adapters(model: str | None) -> dict[str, str]:
    """The adapters that come with the embedded model, by name; none for another model, which they would not fit."""
    if model not in (None, EMBEDDED):
        return {}
    return {path.parent.name: str(path.parent) for path in sorted(DEMO_ADAPTERS.glob("*/adapter_config.json"))}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kev Workbench: several questions in one forward pass, isolated.")
    parser.add_argument("--model", help="embedded, a folder, hf:owner/name, modelscope:owner/name or gguf:path")
    parser.add_argument("--backend", help="attention backend: flash, segment or dense")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--dtype", help="of the weights: float32, bfloat16, float16 or int8")
    parser.add_argument("--kv-dtype", help="of keys and values: float32, bfloat16 or int8")
    parser.add_argument("--threads", type=int, help="CPU threads of the model")
    parser.add_argument("--kv-budget", type=int, metavar="BYTES", help="memory for keys and values")
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=SOURCE",
                        help="a folder, a .zip, hf:owner/name or modelscope:owner/name; may be repeated")
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
    parser.add_argument("--mcp", action="store_true",
                        help="offer the API as MCP tools too (pip install 'mcp>=1.30,<2')")
    given = parser.parse_args()
    if given.mcp and importlib.util.find_spec("mcp") is None:
        parser.error("--mcp needs a package that is not installed: pip install 'mcp>=1.30,<2'")
    if wrong := [text for text in given.adapter if not all(text.partition("="))]:
        parser.error(f"--adapter is {wrong[0]!r}, but it must be name=source")
    return given


def main() -> None:
    given = arguments()
    # What is imported now stays: looking through it again and again for garbage is a seventh of the start.
    gc.disable()
    if not given.mcp:
        sys.modules["mcp"] = None  # type: ignore[assignment]  # where it is installed, Gradio imports it unasked
    from kev_engine import EngineConfig, KevError

    adapters = demo_adapters(given.model or os.environ.get("KEV_MODEL") or None)
    adapters |= dict(text.split("=", 1) for text in given.adapter)
    try:
        config = EngineConfig.from_env(model=given.model, backend=given.backend, device=given.device,
                                       dtype=given.dtype, kv_dtype=given.kv_dtype, threads=given.threads,
                                       kv_budget_bytes=given.kv_budget, adapters=adapters)
        engine = load_beside_page(config)
    except KevError as error:
        raise SystemExit(f"kev: {error}") from None
    from app import build_app, page_options
    from app.live_engine import LiveEngine

    live = LiveEngine(engine)
    del engine  # another model may take its place, and then nobody holds it
    with closing(live):
        demo = build_app(live)
        gc.freeze()
        gc.enable()
        demo.launch(server_name=given.host, server_port=given.port, mcp_server=given.mcp, **page_options())


def load_beside_page(config: EngineConfig) -> Engine:
    """The engine, its weights read while the page's libraries are imported: both take seconds."""
    from kev_engine.models.lean import import_transformers
    from kev_engine.models.terminal import TerminalProgress

    import_transformers()
    from kev_engine import Engine

    terminal = TerminalProgress()
    is_loading = threading.Event()

    def progress(stage: str, done: int, total: int) -> None:
        terminal(stage, done, total)
        if stage == "load":
            is_loading.set()

    with ThreadPoolExecutor(1) as loader:
        loading = loader.submit(Engine, config, progress)
        loading.add_done_callback(lambda _: is_loading.set())
        is_loading.wait()  # until then the engine imports libraries itself
        import app  # noqa: F401

        engine = loading.result()
    terminal.end()
    return engine


if __name__ == "__main__":
    main()
