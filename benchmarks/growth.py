"""How time grows with the number of questions and with their length: python -m benchmarks.growth [--picture out.png]

Prefill and a decode step of N questions of 64 tokens (N = 1 … 64), and of 2 questions of L tokens (L = 128 … 4,096), on
the embedded model: the least of a few runs each, in turn. The exponent is the slope between the two last points in
logarithms: 1 = in proportion. Beside it what is computed for attention: the sum of the squares of the lengths, half of
which the causal mask leaves.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from math import log
from pathlib import Path

from kev_engine import Engine, EngineConfig, Question, Step

COUNTS, LENGTHS = (1, 2, 4, 8, 16, 32, 64), (128, 256, 512, 1024, 2048, 4096)
SHORT, PAIR, NEW_TOKENS = 64, 2, 6
Row = tuple[int, int, float, float]
"""Tokens in all, sum of the squared lengths, milliseconds of the prefill and of a decode step."""


def measure(engine: Engine, count: int, length: int, seed: int) -> tuple[float, float]:
    """Milliseconds of the prefill, all of its forwards, and of the quickest step that only decodes."""
    prompts = [tuple(100 + (7 * place + 13 * index + seed) % 4000 for place in range(length)) for index in range(count)]
    questions = [
        Question(str(index), prompt_token_ids=prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True)
        for index, prompt in enumerate(prompts)
    ]
    prefill, decode = 0.0, []
    for event in engine.stream(questions):
        if isinstance(event, Step):
            if event.plan.num_decode == event.plan.num_sequences == count:
                decode.append(event.forward_ms)
            else:
                prefill += event.forward_ms
    return prefill, min(decode)


def series(engine: Engine, sizes: Iterable[tuple[int, int]], rounds: int) -> list[Row]:
    """A row for each (questions, tokens of each)."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    sizes = list(sizes)
    for number in range(rounds):
        for size in sizes:
            found.setdefault(size, []).append(measure(engine, *size, seed=number))
    least = {size: [min(column) for column in zip(*found[size], strict=True)] for size in sizes}
    return [(count * length, count * length**2, *least[count, length]) for count, length in sizes]


def slope(rows: list[Row], column: int) -> float:
    """The exponent between the two last rows."""
    (first, *_), (last, *_) = rows[-2:]
    return log(rows[-1][column] / rows[-2][column]) / log(last / first)


def draw(by_count: list[Row], by_length: list[Row], target: Path) -> None:
    """Both series as a picture, by the page's own plotting library in Chromium."""
    import plotly.graph_objects as go
    from playwright.sync_api import sync_playwright
    from plotly.subplots import make_subplots

    titles = (f"N questions of {SHORT} tokens", f"{PAIR} questions of L tokens")
    figure = make_subplots(1, 2, subplot_titles=titles)
    for column, (rows, sizes) in enumerate(((by_count, COUNTS), (by_length, LENGTHS)), 1):
        for name, index, colour in (("prefill", 2, "#0072B2"), ("decode step", 3, "#D55E00")):
            figure.add_trace(go.Scatter(
                x=list(sizes), y=[row[index] for row in rows], name=name, mode="lines+markers", line={"color": colour},
                showlegend=column == 1,
            ), row=1, col=column)
        figure.update_xaxes(type="log", tickvals=sizes, ticktext=[f"{size:,}" for size in sizes], col=column)
    figure.update_yaxes(type="log", title_text="ms", dtick=1)
    figure.update_layout(template="plotly_white", width=960, height=420, margin={"t": 48, "b": 40, "l": 60, "r": 20})
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 980, "height": 440})
        page.set_content(figure.to_html(include_plotlyjs=True))
        page.wait_for_selector(".main-svg")
        page.screenshot(path=target)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    config = EngineConfig.from_env(threads=given.threads, prefix_cache_bytes=0, kv_budget_bytes=1 << 30)
    with Engine(config) as engine:
        measure(engine, 1, SHORT, 0)
        by_count = series(engine, ((count, SHORT) for count in COUNTS), given.rounds)
        by_length = series(engine, ((PAIR, length) for length in LENGTHS), given.rounds)
    for title, rows, sizes in (("questions", by_count, COUNTS), ("tokens each", by_length, LENGTHS)):
        print(f"| {title} | Σ len² | prefill, ms | decode step, ms |\n|---|---|---|---|")
        for size, row in zip(sizes, rows, strict=True):
            print(f"| {size} | {row[1]:,} | {row[2]:.0f} | {row[3]:.0f} |")
        print(f"\nexponents: prefill {slope(rows, 2):.2f}, decode step {slope(rows, 3):.2f}\n")
    if given.picture:
        draw(by_count, by_length, given.picture)


if __name__ == "__main__":
    main()
