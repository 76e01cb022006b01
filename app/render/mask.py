"""The mask of the run as the canvas gets it, and the sentence about a clicked row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app.board import CARD_IDS
from app.i18n import say, texts
from app.render.text import escape, to_json
from app.run_view import RunView
from kev_engine.isolation import mask
from kev_engine.runtime.events import OTHERS

if TYPE_CHECKING:
    from kev_engine import PackedLayout, Step
    from kev_engine.runtime.events import SegmentInfo

TokenTexts = Callable[[Sequence[int]], Sequence[str]]
SHARED_COLOUR, OTHERS_COLOUR, RESERVED_COLOUR = -1, -2, -3
"""Colours of a canvas that are no question's; 0 and more are the cards' own."""


def mask_story(view: RunView, token_texts: TokenTexts, language: str) -> str:
    """What the canvas draws: segments, the bands of allowed cells, and the last step's rows. Never a matrix."""
    words = {key: text for key, text in texts(language).items() if key.startswith("mask.")}
    words["base"] = say(language, "base")
    if view.plan is None or (layout := view.layout) is None:
        label = words["mask.empty"]
        return to_json({"size": 0, "segments": [], "bands": [], "step": None, "words": words, "label": label})
    segments = [
        {
            "name": info.name, "colour": colour(info), "start": start, "end": end,
            "prompt": view.plan.layout.lengths[k], "done": view.executed[k], "adapter": info.adapter,
            "first": layout.position_starts[k],
            "texts": list(token_texts(view.generated(k))),
        }
        for k, (info, (start, end)) in enumerate(zip(view.plan.segments, layout.intervals, strict=True))
    ]
    bands = [[b.row, b.row_end, b.key, b.key_end, int(b.grows)] for b in mask.bands(layout)]
    label = say(language, "mask.label", segments=layout.num_segments, tokens=layout.num_tokens,
                allowed=mask.count_allowed(layout))
    step = _step(view.step, layout) if view.step is not None else None
    return to_json({"size": layout.num_tokens, "segments": segments, "bands": bands, "step": step, "words": words,
                  "label": label})


def _step(step: Step, layout: PackedLayout) -> dict[str, object]:
    """The last forward: for each chunk its rows, and its keys as stretches of the story of one segment each."""
    rows: list[dict[str, object]] = []
    for chunk, segment in zip(step.plan.chunks, step.segments, strict=True):
        keys: list[list[int]] = []
        if segment == OTHERS:
            keys.append([OTHERS_COLOUR, 0, chunk.num_keys])
        else:
            for member in layout.lineage(segment):
                first = layout.position_starts[member]
                keys.append([member, first, min(chunk.num_keys, first + layout.lengths[member])])
        rows.append({"segment": segment, "start": chunk.start, "num_new": chunk.num_new, "keys": keys})
    return {"index": step.index, "rows": rows}


def prompt_texts(view: RunView, token_texts: TokenTexts) -> str:
    """The text of each prompt token of each segment, for the hover line; sent once a run."""
    return to_json([list(token_texts(info.token_ids)) for info in view.plan.segments] if view.plan else [])


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
    return CARD_IDS.index(info.name) if info.name in CARD_IDS else SHARED_COLOUR
