"""The explanation of a run as HTML: figures in a table, then sentences about what they point at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.explain import TPOT, TTFT, Change, Explanation, Phase, compare
from app.i18n import say
from app.render.text import escape

if TYPE_CHECKING:
    from app.run_view import RunView


def explanation(view: RunView, language: str) -> str:
    """What the run's figures say; empty before the first run is over."""
    told = view.explanation
    if told is None:
        return ""
    parts = [f"<summary>{escape(say(language, 'explain.title'))}</summary>", _shares(told, language),
             _phases(told, language), _machine(told, language)]
    for moves in (TTFT, TPOT):
        parts.append(_levers(told, moves, language))
    if view.before is not None:
        parts.append(_changes(compare(told, view.before), language))
    return f'<details>{"".join(parts)}</details>'


def _shares(told: Explanation, language: str) -> str:
    total = told.total_ms or 1.0
    kinds = (("prefill", told.prefill.ms), ("decode", told.decode.ms), ("other", told.other_ms))
    bar = "".join(f'<i class="{name}" style="width: {100 * ms / total:.1f}%"></i>' for name, ms in kinds)
    shares = {name: f"{100 * ms / total:.0f} %" for name, ms in kinds}
    line = say(language, "explain.shares", **shares, seconds=f"{total / 1000:.2f}")
    width = told.decode.sequences / told.decode.forwards if told.decode.forwards else 0
    facts = told.facts
    memory = say(language, "explain.memory", width=f"{width:,.1f}".removesuffix(".0"),
                 kv=f"{100 * facts.kv_peak_share:.1f} %", cached=f"{facts.cached_tokens:,}",
                 prompt=f"{facts.prompt_tokens:,}")
    return f'<div class="shares" aria-hidden="true">{bar}</div><p>{escape(line)} {escape(memory)}</p>'


def _phases(told: Explanation, language: str) -> str:
    heads = "".join(f'<th scope="col">{escape(say(language, f"explain.{name}"))}</th>' for name in (
        "phase", "forwards", "tokens_per_step", "flops_per_step", "bytes_per_step", "intensity", "bound", "reached"))
    rows = "".join(_row(name, phase, language) for name, phase
                   in (("prefill", told.prefill), ("decode", told.decode)) if phase.forwards)
    table = f'<table class="proofs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    label = escape(say(language, "explain.title"))
    return f'<div class="wide-table" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _row(name: str, phase: Phase, language: str) -> str:
    bound = "–" if phase.roof is None else say(language, f"explain.by_{phase.roof}")
    reached = "–" if phase.reached is None else f"{100 * phase.reached:.0f} %"
    cells = (f"{phase.forwards:,}", f"{phase.tokens / phase.forwards:,.0f}",
             f"{phase.flops / phase.forwards / 1e9:,.1f} GFLOP", f"{phase.num_bytes / phase.forwards / 2**20:,.0f} MiB",
             f"{phase.intensity:,.1f}", bound, reached)
    return (f'<tr><th scope="row">{escape(say(language, f"explain.{name}"))}</th>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")


def _machine(told: Explanation, language: str) -> str:
    machine = told.machine
    if machine is None:
        return f'<p class="soft">{escape(say(language, "explain.unmeasured"))}</p>'
    flops, num_bytes = machine.flops_per_second, machine.bytes_per_second
    line = say(language, "explain.machine", flops=f"{flops / 1e9:,.0f}", bytes=f"{num_bytes / 1e9:,.1f}",
               balance=f"{flops / num_bytes:,.1f}")
    return f'<p class="soft">{escape(line)}</p>'


def _levers(told: Explanation, moves: str, language: str) -> str:
    mean = told.facts.ttft_ms if moves == TTFT else told.facts.tpot_ms
    title = say(language, f"explain.{moves}", ms="–" if mean is None else f"{mean:,.0f}")
    sentences = [say(language, f"lever.{lever.name}", **{key: _fact(key, value) for key, value in lever.facts})
                 for lever in told.levers if lever.moves == moves]
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<h3>{escape(title)}</h3><ul>{listed}</ul>" if sentences else ""


def _fact(key: str, value: float) -> str:
    if key == "share":
        return f"{100 * value:.0f} %"
    return f"{value:,.1f}" if key in ("width", "ms") else f"{value:,.0f}"


def _changes(changes: tuple[Change, ...], language: str) -> str:
    title = say(language, "explain.since")
    if not changes:
        return f"<h3>{escape(title)}</h3><p>{escape(say(language, 'explain.unchanged'))}</p>"
    lines = [say(language, f"change.{change.name}", before=_figure(change.name, change.before),
                 now=_figure(change.name, change.now)) for change in changes]
    return f"<h3>{escape(title)}</h3><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _figure(name: str, value: float) -> str:
    if name == "kv_peak":
        return f"{100 * value:.0f} %"
    return f"{value:,.1f}" if name == "batch" else f"{value:,.0f}"
