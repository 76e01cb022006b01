"""The fault lab as HTML: what the proofs say of the broken run, its answers, and the doctor's word."""

from __future__ import annotations

from app.i18n import say, sentence
from app.lab_view import LabView
from app.render.doctor_findings import doctor_findings
from app.render.text import escape
from app.render.verdict import proofs, proven
from kev_engine.doctor.lab import NAMES


def lab_verdict(view: LabView, language: str) -> str:
    """How far the run is, or whether the fault broke it, in one line; under it the answers of both runs."""
    if view.error is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(view.error, language))}</p>'
    if view.progress is not None:
        done, total = view.progress
        key = "lab.running" if total else "lab.recording"
        return f'<p role="status">{escape(say(language, key, done=done, total=total))}</p>'
    if view.audit is None:
        return f'<p class="hint">{escape(say(language, "lab.hint"))}</p>'
    is_harmless = view.audit.isolated
    mark, sign, key = ("ok", "✓", "lab.harmless") if is_harmless else ("bad", "✗", "lab.broken")
    line = " · ".join([say(language, f"fault.{view.fault}"), *proven(view.audit, language)])
    reason = f"<p>{escape(_reason(view, language))}</p>" if is_harmless else ""
    lead = f'<b class="{mark}">{escape(say(language, key))} {sign}</b>'
    return (f'<p role="status" data-fault="{escape(view.fault)}">{lead} {escape(line)}</p>{reason}'
            f"{_answers(view, language)}{proofs(view.audit, language)}")


def _reason(view: LabView, language: str) -> str:
    """Why this fault does no harm here."""
    assert view.audit is not None
    if view.fault == "no-reset":
        return say(language, "lab.harmless.positions")
    if view.fault == "adapter-shift" and len({info.adapter for info in view.audit.segments}) == 1:
        return say(language, "lab.harmless.adapters")
    return say(language, "lab.harmless.one" if len(view.audit.questions) == 1 else "lab.harmless.here")


def _answers(view: LabView, language: str) -> str:
    heads = "".join(
        f'<th scope="col">{escape(say(language, f"lab.{name}"))}</th>' for name in ("question", "right", "wrong"))
    rows = "".join(
        f'<tr data-changed="{int(both.right != both.broken)}"><th scope="row">{escape(name)}</th>'
        f"<td>{escape(both.right)}</td><td>{escape(_broken(both.right, both.broken, language))}</td></tr>"
        for name, both in view.answers.items())
    return f'<table class="lab-answers"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _broken(right: str, broken: str, language: str) -> str:
    return say(language, "lab.same") if right == broken else broken or say(language, "answer.nothing")


def lab_findings(view: LabView, language: str) -> str:
    """What the doctor says of the faulty arrays, and whether that names the fault."""
    report = view.doctor.report
    if report is None:
        return ""
    name = NAMES[view.fault]
    key = "lab.named" if name in report.codes else "lab.unnamed"
    line = say(language, key, code=name, fault=say(language, f"fault.{view.fault}"))
    return f'<p class="named">{escape(line)}</p>{doctor_findings(view.doctor, language)}'
