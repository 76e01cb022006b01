"""A kept run as code to copy: the call of the page's API that asks the same again, with the seeds that were drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.run_record import RunRecord

ORIGIN = "%ORIGIN%"
"""Stands for the address of the page, which only the browser knows."""


def questions_again(record: RunRecord) -> list[dict[str, Any]]:
    """The questions with the temperature and the seed that each was answered with."""
    rows = []
    for question in record.questions:
        answers = record.answers_of(str(question["id"]))
        drawn = answers[0]["sampling"] if answers else {}
        known = {name: drawn[name] for name in ("temperature", "seed") if drawn.get(name) is not None}
        rows.append({**question, **known})
    return rows


def python(record: RunRecord) -> str:
    """Python that needs `pip install gradio_client`."""
    return (f"from gradio_client import Client\n\nquestions = {_literal(questions_again(record))}\n"
            f"shared = {_literal(dict(record.shared))}\n"
            f'run = Client("{ORIGIN}").predict(questions, shared, api_name="/run")\n'
            'for answer in run["answers"]:\n    print(answer["id"], answer["text"])\n')


def curl(record: RunRecord) -> str:
    """A shell command: the first call starts the run, the second waits for it."""
    data = json.dumps({"data": [questions_again(record), dict(record.shared)]}).replace("'", "'\\''")
    return (f"event=$(curl -s {ORIGIN}/gradio_api/call/run -H 'Content-Type: application/json' -d '{data}'"
            " | sed 's/.*\"event_id\": *\"\\([^\"]*\\)\".*/\\1/')\n"
            f"curl -sN {ORIGIN}/gradio_api/call/run/$event\n")


def _literal(value: object) -> str:
    """The value as Python writes it, over several lines where it is long."""
    from pprint import pformat

    return pformat(value, width=110, sort_dicts=False)
