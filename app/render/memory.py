"""A plan of memory as HTML and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.i18n import say, sentence
from app.planner import CONCURRENCIES, Plan
from app.render.text import escape, sizes
from kev_engine.models.footprint import BITS, GIB

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from kev_engine import KevError
    from kev_engine.models.footprint import Footprint, LayerShape

COLOURS = ("#14475b", "#e26f1b", "#05a863", "#af4395", "#a29645", "#669ebf", "#a74356")
GIB_TICKS = tuple(2.0**power for power in range(-8, 21))
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
FAINT = "rgba(128, 136, 150, .3)"


def plan_figures(plan: Plan | None, error: KevError | None, language: str) -> str:
    """Bytes a token with their formula, what was asked, and notes; or what to do, or what is wrong."""
    if error is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(error, language))}</p>'
    if plan is None:
        return f'<p class="hint">{escape(say(language, "memory.empty"))}</p>'
    found = plan.footprint
    rows = "".join(
        f'<div{mark}><dt>{escape(say(language, f"memory.row.{name}"))}</dt>'
        f"<dd>{'<br>'.join(map(escape, lines))}</dd></div>"
        for name, lines, mark in _rows(plan, language))
    notes = "".join(
        f'<p class="note">{escape(say(language, f"memory.note.{note.code}", **dict(note.facts)))}</p>'
        for note in found.shape.notes)
    head = say(language, "memory.a_token", size=sizes(found.bytes_per_token))
    return (f'<h2>{escape(found.shape.name)}</h2><p class="a-token">{escape(head)}</p>'
            f'<p class="formula">{escape(found.formula)}</p>'
            f'<p class="soft">{escape(say(language, "memory.formula"))}</p>'
            f'<dl class="figures">{rows}</dl>{notes}')


def _rows(plan: Plan, language: str) -> list[tuple[str, list[str], str]]:
    """Name, lines and mark of each row."""
    found, asked = plan.footprint, plan.asked
    shape = found.shape
    context, count = f"{asked.context:,}", f"{asked.concurrency:,}"
    weights = found.weight_bytes
    told = say(language, "memory.weights_unknown") if weights is None else say(
        language, "memory.weights", parameters=f"{shape.num_parameters:,}", bits=BITS[found.weight_dtype],
        size=sizes(weights))
    rows = [("weights", [told], "")]
    kv = say(language, "memory.kv", concurrency=count, context=context, size=sizes(asked.kv_bytes))
    rows.append(("kv", [kv], ""))
    whole = found.kv_bytes_whole(asked.context) * asked.concurrency
    if whole != asked.kv_bytes:
        rows.append(("kv_whole", [say(language, "memory.kv_whole", size=sizes(whole))], ""))
    rows.append(("device", [say(language, "memory.device_size", size=sizes(found.device_bytes),
                               percent=f"{found.usable * 100:g}", usable=sizes(found.usable_bytes))], ""))
    if asked.total_bytes is not None:
        left = found.usable_bytes - asked.total_bytes
        fate = say(language, "memory.fits" if asked.fits else "memory.fits_not", size=sizes(abs(left)))
        rows.append(("total", [f"{sizes(asked.total_bytes)}: {fate}"], f' class="{"ok" if asked.fits else "bad"}"'))
        rows.append(("batch", [say(language, "memory.batch", count=f"{found.largest_batch(asked.context):,}",
                                   context=context)], ""))
        rows.append(("longest", [say(language, "memory.longest", concurrency=count,
                                     context=f"{found.longest_context(asked.concurrency):,}")], ""))
    rows.append(("gqa", [_shared(found, asked.context * asked.concurrency, language)], ""))
    masks = plan.masks
    rows.append(("mask", [say(
        language, "memory.mask", tokens=f"{masks.num_tokens:,}", dense=sizes(masks.dense_bool),
        additive=sizes(masks.dense_additive(found.weight_dtype)), dtype=found.weight_dtype,
        boundaries=sizes(masks.cu_seqlens))], ""))
    rows.append(("layers", _layer_lines(found, language), ""))
    return rows


def _shared(found: Footprint, tokens: int, language: str) -> str:
    without = found.bytes_without_sharing
    if without == found.bytes_per_token:
        return say(language, "memory.gqa_none")
    heads = sorted({layer.num_heads for layer in found.shape.layers})
    return say(language, "memory.gqa", factor=f"{without / found.bytes_per_token:.3g}",
               heads="/".join(map(str, heads)), size=sizes(without * tokens))


def _layer_lines(found: Footprint, language: str) -> list[str]:
    """The kinds of layers, each once with its number, in the order in which they first appear."""
    counts: dict[LayerShape, int] = {}
    by_layer = dict(zip(found.shape.layers, found.bytes_by_layer, strict=True))
    for layer in found.shape.layers:
        counts[layer] = counts.get(layer, 0) + 1
    lines = []
    for layer, count in counts.items():
        is_square = layer.key_size == layer.value_size
        kind = "_reuses" if layer.reuses else "" if layer.window is None else "_window"
        lines.append(say(
            language, f"memory.layer{kind}", count=count, kv_heads=layer.num_kv_heads, heads=layer.num_heads,
            size=layer.key_size if is_square else f"({layer.key_size} + {layer.value_size})", window=layer.window,
            bytes=sizes(by_layer[layer])))
    return lines


def plan_table(plan: Plan | None, language: str) -> str:
    """Contexts down, numbers of questions across; what does not fit is struck and said to."""
    if plan is None:
        return ""
    found = plan.footprint
    is_whole = found.weight_bytes is not None
    heads = "".join(f'<th scope="col">{count}</th>' for count in CONCURRENCIES)
    last = f'<th scope="col">{escape(say(language, "memory.column.batch"))}</th>' if is_whole else ""
    rows = []
    for row in plan.table:
        cells = "".join(_cell(cell.kv_bytes if cell.total_bytes is None else cell.total_bytes, cell.fits, language)
                        for cell in row)
        batch = f"<td>{found.largest_batch(row[0].context):,}</td>" if is_whole else ""
        rows.append(f'<tr><th scope="row">{row[0].context:,}</th>{cells}{batch}</tr>')
    caption = say(language, "memory.table" if is_whole else "memory.table_kv")
    corner = escape(say(language, "memory.column.context"))
    return (f'<table class="plan"><caption>{escape(caption)}</caption><thead><tr><th scope="col">{corner}</th>{heads}'
            f"{last}</tr></thead><tbody>{''.join(rows)}</tbody></table>")


def _cell(size: int, fits: bool | None, language: str) -> str:
    value = f"{size / GIB:,.2f}" if size < 100 * GIB else f"{size / GIB:,.0f}"
    if fits is False:
        return f'<td class="no">{value}<span class="sr"> {escape(say(language, "memory.too_much"))}</span></td>'
    return f'<td class="{"yes" if fits else ""}">{value}</td>'


def plan_figure(plan: Plan | None, language: str) -> go.Figure | None:
    """Memory against context: one line for each number of questions, the usable memory and the weights across."""
    if plan is None:
        return None
    import plotly.graph_objects as go

    found = plan.footprint
    figure = go.Figure()
    by_count = list(zip(*plan.table, strict=True))
    for cells, count, colour, dash in zip(by_count, CONCURRENCIES, COLOURS, DASHES, strict=True):
        sums = [cell.kv_bytes if cell.total_bytes is None else cell.total_bytes for cell in cells]
        name = say(language, "memory.plot.questions", count=count)
        figure.add_scatter(x=list(plan.contexts), y=[size / GIB for size in sums], name=name, mode="lines+markers",
                           line={"color": colour, "dash": dash, "width": 2}, marker={"size": 5})
    across = [("memory.plot.device", found.usable_bytes, "#c0291a")]
    if found.weight_bytes is not None:
        across.append(("memory.plot.weights", found.weight_bytes, "#7b8494"))
    ends = [plan.contexts[0], plan.contexts[-1]]
    for key, size, colour in across:
        figure.add_scatter(x=ends, y=[size / GIB] * 2, name=f"{say(language, key)} {size / GIB:,.1f} GiB", mode="lines",
                           line={"color": colour, "dash": "dot", "width": 1.5})
    figure.update_layout(**_layout(plan, language))
    return figure


def _layout(plan: Plan, language: str) -> dict[str, Any]:
    axis = {"gridcolor": FAINT, "zerolinecolor": FAINT, "linecolor": FAINT}
    return {
        "height": 360, "margin": {"l": 56, "r": 12, "t": 30, "b": 48}, "font": {"size": 12, "color": "#7b8494"},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "hovermode": "closest",
        "title": {"text": escape(say(language, "memory.plot.title")), "font": {"size": 13}, "x": 0, "xanchor": "left"},
        "legend": {"orientation": "h", "y": -0.22},
        "xaxis": {**axis, "type": "log", "title": {"text": escape(say(language, "memory.plot.x"))},
                  "tickvals": list(plan.contexts), "ticktext": [_short(context) for context in plan.contexts]},
        "yaxis": {**axis, "type": "log", "title": {"text": escape(say(language, "memory.plot.y"))},
                  "tickvals": GIB_TICKS, "ticktext": [f"{size:,g}" for size in GIB_TICKS]},
    }


def _short(context: int) -> str:
    return f"{context // 1024}k" if context % 1024 == 0 else f"{context:,}"
