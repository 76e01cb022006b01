"""Makes the README's pictures of the run tab, light and dark, on the embedded model: python assets/pictures.py"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from app import build_app, page_options  # noqa: E402
from kev_engine import Engine, EngineConfig  # noqa: E402

IMAGES = ROOT / "assets" / "images"
PORT = 7869
_ARGUMENTS = ["--no-sandbox", "--disable-gpu"]


def main() -> None:
    adapters = {path.parent.name: str(path.parent) for path in ROOT.glob("assets/adapters/*/adapter_config.json")}
    config = EngineConfig.from_env(kv_budget_bytes=2**28, adapters=adapters)
    with Engine(config) as engine, TemporaryDirectory() as folder:
        demo = build_app(engine, history_folder=Path(folder))
        demo.launch(server_name="127.0.0.1", server_port=PORT, prevent_thread_lock=True, quiet=True, **page_options())
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
            for scheme in ("light", "dark"):
                take(browser, scheme, IMAGES / f"run-tab-{scheme}.png")
            browser.close()
        demo.close()


def take(browser: Browser, scheme: str, path: Path) -> None:
    """The first preset, answered and audited, at 1280 × 900."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, device_scale_factor=1.5)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{PORT}")
    page.wait_for_selector("#mask canvas[data-version]")
    page.click("#tour .dismiss")
    page.click("#run")
    expect(page.locator("#summary .meta")).to_be_visible(timeout=120_000)
    page.click("#audit")
    expect(page.locator("#verdict .ok")).to_be_visible(timeout=120_000)
    expect(page.locator("#run")).to_be_enabled()
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=path)
    context.close()


if __name__ == "__main__":
    main()
