"""A run as files that stand alone: an HTML report without a script or a link, and a CSV table."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from app.i18n import say
from app.render.history import run_detail, when
from app.render.text import escape

if TYPE_CHECKING:
    from app.run_record import RunRecord

STYLE = """
:root { color-scheme: light dark; --bg: #fbfaf8; --panel: #fff; --ink: #1d2330; --soft: #5d6676; --line: #e4e2dc;
  --good: #16794c; --bad: #c0291a; }
@media (prefers-color-scheme: dark) { :root { --bg: #12151b; --panel: #191d26; --ink: #e7e9ee; --soft: #a3acba;
  --line: #2a303c; --good: #5fd39b; --bad: #ff8a75; } }
body { margin: 0 auto; max-width: 860px; padding: 24px 16px 48px; background: var(--bg); color: var(--ink);
  font: 15px/1.6 system-ui, "PingFang SC", "Noto Sans CJK SC", "Microsoft YaHei", sans-serif; }
h2 { font-size: 20px; margin: 0 0 12px; } p { margin: 0; }
.figures > div { display: grid; grid-template-columns: 130px 1fr; gap: 12px; padding: 4px 0;
  border-top: 1px solid var(--line); }
.figures { margin: 0 0 18px; } dt, .meta, .hint, .head, figcaption { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.meta, dd { font: 12.5px/1.6 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.asked { background: var(--panel); border: 1px solid var(--line); border-left: 4px solid var(--c); border-radius: 8px;
  padding: 10px 14px; margin: 0 0 12px; }
.head { font-size: 13px; } .question { font-weight: 600; } .text, details p { white-space: pre-wrap;
  overflow-wrap: anywhere; } .text { margin: 6px 0; }
summary { color: var(--soft); cursor: pointer; font-size: 13px; }
.mistake, .bad { color: var(--bad); } .ok { color: var(--good); }
figure { margin: 18px 0 0; } svg { width: 100%; height: auto; max-width: 480px; aspect-ratio: 1; }
.ground { fill: var(--panel); } .cut { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 2; fill: none;
  vector-effect: non-scaling-stroke; }
.legend { list-style: none; padding: 0; margin: 6px 0 0; font-size: 13px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
footer { margin-top: 24px; color: var(--soft); font-size: 13px; }
"""
COLUMNS = ("id", "sample", "question", "context", "shared", "adapter", "adapter_version", "text", "finish_reason",
           "error", "prompt_tokens", "output_tokens", "ttft_ms", "tpot_ms")


def html_report(record: RunRecord, language: str) -> str:
    """One HTML file that shows the run anywhere, with its mask."""
    title = escape(say(language, "record.run", at=when(record.at)))
    return (f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'">'
            f"<title>{title}</title><style>{STYLE}</style></head><body>{run_detail(record, language)}"
            f"<footer>{escape(say(language, 'record.made_by'))}</footer></body></html>\n")


def csv_table(record: RunRecord) -> str:
    """One row an answer, with its question and the whole sampling tuple; a question without one has its sentence.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    names = list(dict.fromkeys(key for answer in record.answers for key in answer["sampling"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, *names], lineterminator="\n")
    writer.writeheader()
    for letter, card in record.board.cards.items():
        asked = {"id": letter, "question": card.question, "context": card.context, "shared": card.shared,
                 "adapter": card.adapter}
        answers = record.answers_of(letter)
        for answer in answers or [{"finish_reason": "error", "error": record.refused.get(letter, ""), "sampling": {}}]:
            row = {**asked, **{name: answer.get(name) for name in COLUMNS if name not in asked}}
            writer.writerow({name: _cell(value) for name, value in {**answer["sampling"], **row}.items()})
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
