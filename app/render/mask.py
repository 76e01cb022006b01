"""The mask of the run as the canvas gets it, and the sentence about a clicked row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app.board import CARD_IDS, owner
from app.i18n import say
from app.render.text import escape, to_json
from app.run_view import RunView
from kev_engine.isolation import mask

if TYPE_CHECKING:
    from kev_engine.runtime.events import SegmentInfo

TokenTexts = Callable[[Sequence[int]], Sequence[str]]
SHARED_COLOUR = -1
"""The colour of a canvas that is no question's; 0 and more are the cards' own."""


NUM_COLOURS = 8


def own_name(info: SegmentInfo) -> str:
    return info.name


def mask_story(view: RunView, token_texts: TokenTexts, named: Callable[[SegmentInfo], str] = own_name) -> str:
    """What the canvas draws: segments, the bands of allowed cells, and every step's rows. Never a matrix, no words.

    A segment's `voice` is the colour of its adapter. A step is `[first, count, rows]` (app/run_view.StepRun), a band
    `[row, row_end, key, key_end, grows]`.
    """
    if view.plan is None or (layout := view.layout) is None:
        return to_json({"size": 0, "segments": [], "bands": [], "steps": [], "allowed": 0})
    segments = [
        {
            "name": named(info), "colour": colour(info), "voice": adapter_colour(info.adapter_id),
            "shared": info.is_shared, "start": start, "end": end,
            "prompt": view.plan.layout.lengths[k], "done": view.executed[k], "adapter": info.adapter,
            "first": layout.position_starts[k], "parent": layout.parents[k],
            "texts": list(token_texts(view.generated(k))),
        }
        for k, (info, (start, end)) in enumerate(zip(view.plan.segments, layout.intervals, strict=True))
    ]
    bands = [[b.row, b.row_end, b.key, b.key_end, int(b.grows)] for b in mask.bands(layout)]
    steps = [[one.first, one.count, one.rows] for one in view.steps]
    return to_json({"size": layout.num_tokens, "segments": segments, "bands": bands, "steps": steps,
                    "allowed": mask.count_allowed(layout)})


TEXT_BORDER = "\x7f"
"""Stands between two token texts; JSON writes this character as it is, one byte long."""


def prompt_texts(view: RunView, token_texts: TokenTexts) -> str:
    """The token texts of each segment's prompt, joined to one text each; sent once a run."""
    infos = view.plan.segments if view.plan else ()
    return to_json([TEXT_BORDER.join(text.replace(TEXT_BORDER, "␡") for text in token_texts(info.token_ids))
                    for info in infos])


def cell(view: RunView, row: int, token_texts: TokenTexts, language: str) -> str:
    """The sentence about a clicked query: which keys the rule lets it read, as runs of the packed row."""
    layout = view.layout
    if view.plan is None or layout is None or not 0 <= row < layout.num_tokens:
        return ""
    runs = mask.runs_of_row(layout, row)
    segment = int(layout.segment_ids[row])
    offset = row - layout.intervals[segment][0]
    ids = view.plan.segments[segment].token_ids + view.generated(segment)
    text = token_texts(ids[offset:offset + 1])[0] if offset < len(ids) else ""
    listed = ", ".join(f"{first}–{last - 1}" for first, last in runs)
    return escape(say(
        language, "mask.locked", q=row, qt=text, ql=view.plan.segments[segment].name,
        position=int(layout.position_ids[row]), count=sum(last - first for first, last in runs),
        total=layout.num_tokens, runs=listed))


def colour(info: SegmentInfo) -> int:
    """The colour of a segment: its card's (of a prompt that several samples share too), or that of shared contexts."""
    letter = owner(info.name)
    return CARD_IDS.index(letter) if letter else SHARED_COLOUR


def adapter_colour(adapter_id: int) -> int:
    """One colour for each adapter, and that of what is nobody's for the base."""
    return (adapter_id - 1) % NUM_COLOURS if adapter_id else SHARED_COLOUR
