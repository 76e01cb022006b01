"""Starts the workbench: arguments, the engine, the page. Also the entry of a Hugging Face Space."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from app import build_app, page_options
from kev_engine import Engine, EngineConfig, KevError

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
    parser.add_argument("--backend", help="attention backend: segment, dense, …")
    parser.add_argument("--threads", type=int, help="CPU threads of the model")
    parser.add_argument("--kv-budget", type=int, metavar="BYTES", help="memory for keys and values")
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=PATH", help="may be given repeatedly")
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
    given = parser.parse_args()
    if wrong := [text for text in given.adapter if not all(text.partition("="))]:
        parser.error(f"--adapter is {wrong[0]!r}, but it must be name=path")
    return given


def main() -> None:
    given = arguments()
    adapters = demo_adapters(given.model or os.environ.get("KEV_MODEL") or None)
    adapters |= dict(text.split("=", 1) for text in given.adapter)
    try:
        config = EngineConfig.from_env(model=given.model, backend=given.backend, threads=given.threads,
                                       kv_budget_bytes=given.kv_budget, adapters=adapters)
        engine = Engine(config)
    except KevError as error:
        raise SystemExit(f"kev: {error}") from None
    with engine:
        demo = build_app(engine)
        demo.launch(server_name=given.host, server_port=given.port, **page_options())


if __name__ == "__main__":
    main()
