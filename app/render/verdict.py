"""What was proven, and the run in one line, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.i18n import say, sentence
from app.render.text import escape, figure
from app.run_view import RunView

if TYPE_CHECKING:
    from kev_engine import Audit, RunStats


def verdict(view: RunView, language: str) -> str:
    """What was proven, in one line; under it the proofs of each question."""
    if view.notice is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(view.notice, language))}</p>'
    if view.auditing is not None:
        line = say(language, "verdict.running")
        if view.auditing.total:
            line = say(language, "verdict.progress", done=view.auditing.done, total=view.auditing.total) + line
        return f'<p role="status">{escape(line)}</p>'
    if view.audit is None:
        lead, rest = say(language, "verdict.unaudited"), say(language, "verdict.hint")
        return f'<p><b>{escape(lead)}</b> <span class="soft">{escape(rest)}</span></p>'
    audit = view.audit
    mark, name = ("ok", "verdict.isolated") if audit.isolated else ("bad", "verdict.leaks")
    sign = "✓" if audit.isolated else "✗"
    line = " · ".join(proven(audit, language))
    return (f'<p role="status"><b class="{mark}">{escape(say(language, name))} {sign}</b> {escape(line)}</p>'
            f"{proofs(audit, language)}")


def proven(audit: Audit, language: str) -> list[str]:
    """What was counted and measured, the worst of all questions."""
    worst: Mapping[str, float] = {
        name: max((getattr(proof, f"{name}_max_abs") for proof in audit.questions), default=0.0)
        for name in ("alone", "neighbour", "poison")
    }
    return [
        say(language, "verdict.foreign", allowed=f"{audit.foreign_cells_allowed:,}",
            total=f"{audit.foreign_cells:,}"),
        *(say(language, f"verdict.{name}", value=figure(value)) for name, value in worst.items()),
    ]


def proofs(audit: Audit, language: str) -> str:
    """The measurements question by question, folded away."""
    heads = "".join(
        f'<th scope="col">{escape(say(language, f"proof.{name}"))}</th>'
        for name in ("question", "alone", "bound", "tokens", "neighbour", "poison"))
    rows = "".join(
        f'<tr><th scope="row">{escape(proof.question_id)}</th><td>{figure(proof.alone_max_abs)}</td>'
        f"<td>{figure(proof.alone_bound)}</td>"
        f"<td>{escape(_tokens_equal(proof.alone_tokens_equal, proof.ties, language))}</td>"
        f"<td>{figure(proof.neighbour_max_abs)}</td><td>{figure(proof.poison_max_abs)}</td></tr>"
        for proof in audit.questions)
    title = escape(say(language, "proof.title"))
    head = f"<details><summary>{title}</summary>"
    return f'{head}<table class="proofs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></details>'


def _tokens_equal(are_equal: bool, ties: int, language: str) -> str:
    if ties and are_equal:
        return say(language, "proof.ties", count=ties)
    return say(language, "proof.yes" if are_equal else "proof.no")


def summary(view: RunView, language: str) -> str:
    """The run in one line: its forwards, the sequences in each, the tokens a second of all answers together."""
    if view.run is None:
        return ""
    stats = view.run.stats
    speed = [say(language, "summary.seconds", seconds=f"{stats.seconds:.1f}")]
    if stats.seconds:
        speed.append(say(language, "answer.rate", rate=f"{view.num_written / stats.seconds:.1f}"))
    rate = " · ".join(speed)
    line = " · ".join(_forwards(stats, language))
    return f'<p class="meta"><span>{escape(line)}</span><span class="rate">{escape(rate)}</span></p>'


def _forwards(stats: RunStats, language: str) -> list[str]:
    forwards = list(zip(stats.tokens_per_forward, stats.sequences_per_forward, strict=True))
    prefills = [tokens for tokens, sequences in forwards if tokens > sequences]
    steps = [sequences for tokens, sequences in forwards if tokens <= sequences]
    parts = [say(language, "summary.prefill", count=len(prefills), tokens=sum(prefills))] if prefills else []
    if steps:
        parts.append(say(language, "summary.steps", count=len(steps)))
    facts = [" + ".join(parts)] if parts else []
    if steps:
        low, high = min(steps), max(steps)
        facts.append(say(language, "summary.sequences", count=low if low == high else f"{low}–{high}"))
    if stats.blocks_leaked:
        facts.append(say(language, "summary.leaked", count=stats.blocks_leaked))
    return facts
