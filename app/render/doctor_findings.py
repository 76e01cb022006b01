"""What was found, as HTML: the verdict in one line, each finding with its repair, and the repaired arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.doctor_form import as_text
from app.doctor_view import DoctorView
from app.i18n import say, sentence
from app.render.doctor import drawn, parts, segment_name
from app.render.text import escape
from kev_engine.doctor.finding import RANK
from kev_engine.doctor.python_form import as_python

if TYPE_CHECKING:
    from kev_engine.doctor import Finding, Report

MOST_COPIED = 400_000
"""Characters of a repaired array that are still put into the page."""


def doctor_findings(view: DoctorView, language: str) -> str:
    """The verdict and the list of findings, or the sentence about what cannot be used."""
    if view.error is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(view.error, language))}</p>'
    if view.report is None:
        return f'<p class="hint">{escape(say(language, "doctor.start"))}</p>'
    report = view.report
    mark = {"ok": "ok", "note": "ok", "warning": "doubt", "error": "bad"}[report.verdict]
    head = (f'<p role="status" data-verdict="{report.verdict}"><b class="{mark}">'
            f'{escape(say(language, f"doctor.verdict.{report.verdict}"))}</b> '
            f'<span class="soft">{escape(" · ".join(_figures(view, report, language)))}</span></p>')
    ordered = sorted(report.findings, key=lambda finding: -RANK[finding.level])
    listed = "".join(_finding(finding, report, language) for finding in ordered)
    assumed = "".join(f"<li>{escape(entry.say(language))}</li>" for entry in report.assumed)
    if assumed:
        title = escape(say(language, "doctor.assumed"))
        assumed = f'<details class="assumed"><summary>{title}</summary><ul>{assumed}</ul></details>'
    return f"{head}<ol>{listed}</ol>{assumed}"


def _figures(view: DoctorView, report: Report, language: str) -> list[str]:
    facts = report.facts
    count = len(report.findings)
    figures = [say(language, "doctor.findings", count=count) if count else say(language, "doctor.nothing")]
    judged = drawn(view)
    if judged is not None:
        sides = parts(judged)
        for name, key in (("leak", "doctor.leaks"), ("missing", "doctor.missing")):
            if count := sides[name].count:
                figures.append(say(language, key, count=f"{count:,}"))
    if facts is not None and facts.total is not None:
        figures.append(say(language, "doctor.tokens", count=f"{facts.total:,}"))
        if facts.segments is not None:
            figures.append(say(language, "doctor.segments", count=len(facts.segments.intervals)))
    return figures


def _finding(finding: Finding, report: Report, language: str) -> str:
    names: Mapping[object, str] = {number: segment_name(number) for number in (
        report.segments.intervals if report.segments is not None else ())}
    where = _place(finding, report)
    code = f'<code>{finding.code}</code>'
    level = f'<span class="level {finding.level}">{escape(say(language, f"doctor.level.{finding.level}"))}</span>'
    message = escape(finding.say("message", language, names))
    repair = escape(finding.say("repair", language, names))
    repair = f'<p class="repair">{repair}</p>' if repair else ""
    if where is None:
        return f'<li class="{finding.level}"><div>{level}{code}</div><p>{message}</p>{repair}</li>'
    title = escape(say(language, "doctor.show"))
    return (f'<li class="{finding.level}"><button type="button" data-go="{where[0]},{where[1]},{where[2]}" '
            f'title="{title}">{level}{code}</button><p>{message}</p>{repair}</li>')


def _place(finding: Finding, report: Report) -> tuple[int, int, int] | None:
    """Where the canvas goes: query, key, and which of the report's rows."""
    judged = report.facts.judged if report.facts is not None else ()
    row = next((index for index, one in enumerate(judged) if one.row == finding.facts.get("row", 0)), 0)
    query, key = finding.facts.get("query"), finding.facts.get("key")
    if isinstance(query, int):
        return query, key if isinstance(key, int) else query, row
    if finding.indexes:
        return finding.indexes[0], finding.indexes[0], row
    return None


def doctor_repair(view: DoctorView, language: str) -> str:
    """The repaired arrays to copy, as JSON and as Python; empty where nothing has exactly one right value."""
    report = view.report
    if report is None or report.facts is None or not report.repairs:
        return ""
    forms = {"JSON": as_text(report.repairs), "Python": as_python(report.repairs, report.facts)}
    title, copy, copied = (escape(say(language, f"doctor.{name}")) for name in ("repair", "copy", "copied"))
    blocks = "".join(
        f'<section><div class="line"><span>{name}</span><button type="button" data-copy data-copied="{copied}">{copy}'
        f"</button></div><pre>{escape(text)}</pre></section>"
        for name, text in forms.items() if text and len(text) <= MOST_COPIED)
    return f'<details open><summary>{title}</summary>{blocks}</details>'
