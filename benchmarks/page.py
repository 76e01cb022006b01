"""What the page costs in a browser, once the model is loaded: first paint, usable, a frame of the mask, bytes of a run.

    python -m benchmarks.page [--loads N] [--questions N] [--tokens N] [--new N]

First paint is the browser's own first contentful paint; usable is the first frame in which a question can be typed, Run
pressed and the mask is drawn: with an empty cache (another visitor) and with the page seen before (a reload). Then so
many questions of so many tokens are run, 32 × 1,000 as given, and what comes back is counted message by message; the
mask of that run is drawn 15 times in each view, its pixels read back so that no work is put off. The bars: 2 s, 3 s,
16 ms, and a few hundred kB.

Prompts are planned and not computed (see benchmarks/planning.py), which changes no byte of what the page is sent.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from app import build_app, page_options
from benchmarks.planning import Clock, TimedRunner
from benchmarks.start import free_port
from kev_engine import Engine, EngineConfig

USABLE = """
const look = () => {
  const field = document.querySelector('#question-A textarea'), run = document.querySelector('#run');
  const isDrawn = document.querySelector('#mask canvas[data-version]');
  if (field && isDrawn && run && !run.disabled && run.getBoundingClientRect().height)
    window.usableAt = performance.now();
  else requestAnimationFrame(look);
};
if (window === top) requestAnimationFrame(look);
"""
DRAW = """() => {
  const canvas = document.querySelector('#mask canvas'), pen = canvas.getContext('2d'), times = [];
  for (let turn = 0; turn < 15; turn++) {
    const start = performance.now();
    canvas.kev.draw();
    pen.getImageData(0, 0, 1, 1);
    times.push(performance.now() - start);
  }
  return times;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--new", type=int, default=16)
    given = parser.parse_args()
    config = EngineConfig.from_env(kv_budget_bytes=(given.questions * (given.tokens + given.new) + 4096) * 46_080)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with Engine(config) as engine, TemporaryDirectory() as folder, sync_playwright() as playwright:
        worker = engine._worker
        worker.runner = TimedRunner(worker.runner, Clock(lambda: 0.0), engine.info.vocab_size)
        demo = build_app(engine, history_folder=Path(folder))
        _, url, _ = demo.launch(server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True,
                                **page_options())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"),
                                             args=["--no-sandbox", "--disable-gpu"])
        loads(browser, url, given.loads)
        run(browser, url, given)
        browser.close()
        demo.close()
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


def loads(browser: Browser, url: str, count: int) -> None:
    """Prints how long a first visit and a reload take."""
    first, again = [], []
    for _ in range(count):
        context = browser.new_context(viewport={"width": 1280, "height": 820})
        context.add_init_script(USABLE)
        page = context.new_page()
        page.goto(url)
        first.append(loaded(page))
        page.reload()
        again.append(loaded(page))
        context.close()
    for name, times in (("first visit", first), ("reload", again)):
        for index, (what, bar) in enumerate((("first paint", 2), ("usable", 3))):
            values = sorted(pair[index] for pair in times)
            print(f"{name}, {what}: {median(values):.2f} s (from {values[0]:.2f} to {values[-1]:.2f}; bar {bar})")


def loaded(page: Page) -> tuple[float, float]:
    """Seconds from the start of the navigation to the first paint, and to a page that can be used."""
    page.wait_for_function("window.usableAt", timeout=60_000)
    paint, usable = page.evaluate("""() => [
        performance.getEntriesByName('first-contentful-paint')[0].startTime, window.usableAt]""")
    return paint / 1e3, usable / 1e3


def run(browser: Browser, url: str, given: argparse.Namespace) -> None:
    """Prints what one run of many tokens sends and how long its mask takes to draw."""
    context = browser.new_context(viewport={"width": 1280, "height": 820})
    context.set_default_timeout(600_000)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#mask canvas[data-version]")
    rows = [{"question": f"Question {index}: " + "calm " * (given.tokens - 45), "max_new_tokens": given.new,
             "ignore_eos": True} for index in range(given.questions)]
    with page.expect_file_chooser() as chosen:
        page.click(".tools-line .import")
    chosen.value.set_files([{"name": "many.json", "mimeType": "application/json", "buffer": json.dumps(rows).encode()}])
    page.wait_for_function(f"document.querySelectorAll('.card').length === {given.questions}")
    wire = Wire(context, page)
    page.click("#run")
    page.wait_for_selector("#summary .meta")
    tokens = page.locator("#mask canvas").get_attribute("data-tokens")
    print(f"a run of {given.questions} questions, {int(tokens or 0):,} tokens: {len(wire.messages)} messages, "
          f"{sum(wire.messages) / 1e3:,.0f} kB, the largest {max(wire.messages) / 1e3:,.0f} kB")
    print(f"of them the mask in {len(wire.masks)} updates {sum(wire.masks) / 1e3:,.0f} kB, the largest "
          f"{max(wire.masks) / 1e3:,.1f} kB; its tokens' texts, sent once, {sum(wire.texts) / 1e3:,.0f} kB "
          "(bar: a few hundred kB)")
    canvas = page.locator("#mask canvas")
    for name, keys in (("the whole story", ""), ("zoomed in", "+"), ("to the token", "+++++++++++")):
        canvas.focus()
        for key in keys:
            page.keyboard.press(key)
        show(name, page.evaluate(DRAW))
    page.keyboard.press("0")
    page.click("#mask button[data-view=step]")
    show("the step", page.evaluate(DRAW))
    context.close()


def show(name: str, times: list[float]) -> None:
    print(f"a frame of {name}: {median(times):.1f} ms (at most {max(times):.1f}; bar 16)")


class Wire:
    """The messages to one page as they arrive: the bytes of each, of the mask in it, and of the tokens' texts."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self.messages: list[int] = []
        self.masks: list[int] = []
        self.texts: list[int] = []
        self._rest: dict[str, bytes] = {}
        self._session = context.new_cdp_session(page)
        self._session.on("Network.responseReceived", self._begin)
        self._session.on("Network.dataReceived", self._data)
        self._session.send("Network.enable")

    def _begin(self, event: dict[str, Any]) -> None:
        if "text/event-stream" in event["response"]["mimeType"]:
            self._rest[event["requestId"]] = b""
            found = self._session.send("Network.streamResourceContent", {"requestId": event["requestId"]})
            self._take(event["requestId"], base64.b64decode(found["bufferedData"]))

    def _data(self, event: dict[str, Any]) -> None:
        if event["requestId"] in self._rest and event.get("data"):
            self._take(event["requestId"], base64.b64decode(event["data"]))

    def _take(self, request: str, data: bytes) -> None:
        *whole, self._rest[request] = (self._rest[request] + data).split(b"\n\n")
        for message in whole:
            self.messages.append(len(message) + 2)
            if message.startswith(b"data: "):
                for text in strings(json.loads(message.removeprefix(b"data: "))):
                    if text.startswith('{"size":'):
                        self.masks.append(len(json.dumps(text)))
                    elif text.startswith('["') and "\x7f" in text:
                        self.texts.append(len(json.dumps(text)))


def strings(value: Any) -> list[str]:
    """Every text within a JSON value."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inside for text in strings(one)]


if __name__ == "__main__":
    main()
