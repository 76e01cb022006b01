"""The mask of a kept run as SVG: drawn from the layout by the same rule that attention executed, with a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.board import CARD_IDS
from app.i18n import say
from app.render.text import escape
from kev_engine.isolation.mask import Band, bands, count_allowed

if TYPE_CHECKING:
    from app.run_record import RunRecord, Segment

COLOURS = ("#14475b", "#e26f1b", "#05a863", "#af4395", "#a29645", "#669ebf", "#a74356", "#7d7876")
SHARED = "#7b8494"
SIDE = 480
MAX_STEPS = 20_000
"""A longer story's diagonals are drawn as lines: its single steps would be thousandths of a pixel."""


def colour(part: Segment) -> str:
    """The colour of a question as on the page; grey for a shared context."""
    if part.is_shared or part.name not in CARD_IDS:
        return SHARED
    return COLOURS[CARD_IDS.index(part.name) % len(COLOURS)]


def mask_svg(record: RunRecord, language: str) -> str:
    """A square figure of all cells that may be read, one path a band; empty where the run had no plan."""
    layout = record.layout
    size = layout.num_tokens
    if not size:
        return ""
    label = say(language, "record.mask", segments=layout.num_segments, tokens=f"{size:,}",
                allowed=f"{count_allowed(layout):,}")
    owners = layout.segment_ids
    paths = "".join(
        f'<path fill="{colour(record.segments[int(owners[band.row])])}"'
        f'{_faint(int(owners[band.row]) != int(owners[band.key]))} d="{_outline(band, size)}"/>'
        for band in bands(layout))
    lines = "".join(
        f'<path class="cut" d="M{start} {start + part.prompt}h{part.prompt}"/>'
        for part, (start, _) in zip(record.segments, layout.intervals, strict=True) if 0 < part.prompt < part.length)
    legend = "".join(
        f'<li><i style="background:{colour(part)}"></i>{escape(_told(part, language))}</li>'
        for part in record.segments)
    return (f'<figure class="mask"><svg viewBox="0 0 {size} {size}" width="{SIDE}" height="{SIDE}" role="img"'
            f' aria-label="{escape(label)}" preserveAspectRatio="none">'
            f'<rect class="ground" width="{size}" height="{size}"/>{paths}{lines}</svg>'
            f"<figcaption>{escape(label)}<br>{escape(say(language, 'record.mask_axes'))}</figcaption>"
            f'<ul class="legend">{legend}</ul></figure>')


def _faint(is_foreign: bool) -> str:
    return ' fill-opacity=".35"' if is_foreign else ""


def _outline(band: Band, size: int) -> str:
    """The cells of a band, each of them: a rectangle, or steps of one cell down and one to the right."""
    row, row_end, key, key_end = band.row, band.row_end, band.key, band.key_end
    if not band.grows:
        return f"M{key} {row}H{key_end}V{row_end}H{key}z"
    count = row_end - row
    edge = "v1h1" * (count - 1) + "v1" if size <= MAX_STEPS else f"L{key_end + count - 1} {row_end}"
    return f"M{key} {row}H{key_end}{edge}H{key}z"


def _told(part: Segment, language: str) -> str:
    told = say(language, "record.segment", name=part.name, length=part.length, generated=part.length - part.prompt)
    return f"{told} · {part.adapter}" if part.adapter else told
