"""Values -> what the page shows: HTML with all text escaped, and JSON for the two canvases. Pure."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from app.forms import CARD_IDS
from app.i18n import say, sentence, texts
from app.run_view import QUEUED, CardView, RunView
from kev_engine.isolation import mask
from kev_engine.runtime.events import FREE, OTHERS, RESERVED

if TYPE_CHECKING:
    from kev_engine import Answer, Audit, PackedLayout, RunStats, Step
    from kev_engine.runtime.engine import EngineInfo
    from kev_engine.runtime.events import KVUsage, SegmentInfo
    from kev_engine.sampling.temperature import TemperatureVersion

TokenTexts = Callable[[Sequence[int]], Sequence[str]]
SHARED_COLOUR, OTHERS_COLOUR, RESERVED_COLOUR = -1, -2, -3
"""Colours of a canvas that are no question's; 0 and more are the cards' own."""

SHORT_DIGEST = 4
_LIVE = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})


def escape(text: object) -> str:
    """The text as HTML that shows it: no markup in it, and nothing a JavaScript template would execute."""
    return html.escape(str(text), quote=True).translate(_LIVE)


# one card


def answer(card: CardView | None, view: RunView, question_id: str, language: str) -> str:
    """The answer of one card: its text so far, then a line of facts; or the sentence about what is wrong."""
    if card is None:
        return f'<p class="hint">{escape(say(language, "answer.hint"))}</p>'
    parts: list[str] = []
    if card.text:
        parts.append(f'<p class="text"><span>{escape(card.text)}</span></p>')
    elif card.answer is not None and card.error is None and card.answer.error is None:
        parts.append(f'<p class="hint">{escape(say(language, "answer.nothing"))}</p>')
    if card.error is not None:
        parts.append(f'<p class="mistake" role="alert">{escape(sentence(card.error, language))}</p>')
    elif card.answer is not None and card.answer.error is not None:
        parts.append(f'<p class="mistake" role="alert">{escape(card.answer.error)}</p>')
    if card.error is None or card.answer is not None:
        facts = " · ".join(_facts(card, view, question_id, language))
        parts.append(f'<p class="meta" role="status">{escape(facts)}</p>')
    return f'<div data-status="{escape(card.status)}">{"".join(parts)}</div>'


def _facts(card: CardView, view: RunView, question_id: str, language: str) -> list[str]:
    if card.status == QUEUED:
        return [_progress(view, question_id, language)]
    facts = [say(language, f"status.{card.status}"), say(language, "answer.tokens", count=len(card.token_ids))]
    if card.answer is not None:
        facts += _measured(card.answer, language)
    return facts


def _progress(view: RunView, question_id: str, language: str) -> str:
    """How much of a waiting question's prompt was read: it is told apart from one that has not begun."""
    segment = _segment_of(view, question_id)
    if view.plan is None or segment is None or view.executed[segment] == 0:
        return say(language, "status.queued")
    return say(language, "status.prefill", done=view.executed[segment], total=view.plan.layout.lengths[segment])


def _measured(result: Answer, language: str) -> list[str]:
    facts: list[str] = []
    if result.ttft_ms is not None:
        facts.append(say(language, "answer.ttft", ms=f"{result.ttft_ms:.0f}"))
    if result.tpot_ms:
        facts.append(say(language, "answer.rate", rate=f"{1000 / result.tpot_ms:.1f}"))
    if result.sampling.temperature and result.sampling.seed is not None:
        facts.append(say(language, "answer.seed", seed=result.sampling.seed))
    return facts


def _segment_of(view: RunView, question_id: str) -> int | None:
    infos = view.plan.segments if view.plan else ()
    return next((k for k, info in enumerate(infos) if not info.is_shared and info.name == question_id), None)


# the mask


def mask_story(view: RunView, token_texts: TokenTexts, language: str) -> str:
    """What the canvas draws: segments, the bands of allowed cells, and the last step's rows. Never a matrix."""
    words = {key: text for key, text in texts(language).items() if key.startswith("mask.")}
    words["base"] = say(language, "base")
    if view.plan is None or (layout := view.layout) is None:
        label = words["mask.empty"]
        return _json({"size": 0, "segments": [], "bands": [], "step": None, "words": words, "label": label})
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
    return _json({"size": layout.num_tokens, "segments": segments, "bands": bands, "step": step, "words": words,
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
    return _json([list(token_texts(info.token_ids)) for info in view.plan.segments] if view.plan else [])


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
    """The colour of a segment: its card's, or the one of shared contexts."""
    return SHARED_COLOUR if info.is_shared or info.name not in CARD_IDS else CARD_IDS.index(info.name)


# memory


def kv_gauge(view: RunView, info: EngineInfo, language: str) -> str:
    """What the gauge draws: bytes by question, and the blocks in use (index, colour, tables, generation)."""
    words = {key: text for key, text in texts(language).items() if key.startswith("kv.")}
    budget = f"{mib(info.kv_bytes_budget)} MiB"
    base: dict[str, object] = {"words": words, "scale": info.kv_bytes_budget, "predicted": 0, "scale_text": ""}
    if view.step is None or view.plan is None:
        per_token = f"{info.bytes_per_token / 1024:,.1f} KiB"
        figures = say(language, "kv.empty", budget=budget, per_token=per_token)
        return _json({**base, "stacks": [], "blocks": [], "total": 0, "figures": figures, "label": figures})
    kv = view.step.kv
    names = [segment.name for segment in view.plan.segments]
    colours = [colour(segment) for segment in view.plan.segments]
    stacks = [[colours[k], names[k], size] for k, size in enumerate(kv.bytes_by_segment) if size]
    if kv.bytes_others:
        stacks.append([OTHERS_COLOUR, words["kv.others"], kv.bytes_others])
    blocks = _blocks(kv, colours, names, language)
    total = len(kv.block_owner) - 1
    figures = say(language, "kv.used", used=mib(kv.bytes_used), budget=budget, peak=mib(kv.bytes_peak),
                  predicted=mib(view.plan.kv_bytes_predicted))
    label = say(language, "kv.label", used=sum(block[1] != RESERVED_COLOUR for block in blocks), total=total)
    predicted = view.plan.kv_bytes_predicted
    need = max(predicted + kv.bytes_others, kv.bytes_used)
    if need * 4 < info.kv_bytes_budget:
        # Against a large budget a small run would be a hair: the bar ends a little above its need, and says so.
        scale = need * 5 // 4
        base |= {"scale": scale, "scale_text": say(language, "kv.scale", size=mib(scale))}
    base |= {"predicted": predicted}
    return _json({**base, "stacks": stacks, "blocks": blocks, "total": total, "figures": figures, "label": label})


def _blocks(kv: KVUsage, colours: Sequence[int], names: Sequence[str], language: str) -> list[list[object]]:
    """The blocks not free, without the zero block: index from 0, colour, owner, tables it stands in, generation."""
    nobody = {OTHERS: (OTHERS_COLOUR, say(language, "kv.others")),
              RESERVED: (RESERVED_COLOUR, say(language, "kv.reserved"))}
    blocks: list[list[object]] = []
    for index in (kv.block_owner != FREE).nonzero()[0].tolist():
        owner = int(kv.block_owner[index])
        paint, name = nobody[owner] if owner < 0 else (colours[owner], names[owner])
        blocks.append([index - 1, paint, name, int(kv.block_refs[index]), int(kv.block_generation[index])])
    return blocks


def mib(size: int) -> str:
    """Bytes in MiB, with the digits a person needs."""
    value = size / 2**20
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


# the verdict and the run


def verdict(view: RunView, language: str) -> str:
    """What was proven, in one line; under it the proofs of each question."""
    if view.notice is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(view.notice, language))}</p>'
    if view.is_auditing:
        return f'<p role="status">{escape(say(language, "verdict.running"))}</p>'
    if view.audit is None:
        lead, rest = say(language, "verdict.unaudited"), say(language, "verdict.hint")
        return f'<p><b>{escape(lead)}</b> <span class="soft">{escape(rest)}</span></p>'
    audit = view.audit
    mark, name = ("ok", "verdict.isolated") if audit.isolated else ("bad", "verdict.leaks")
    sign = "✓" if audit.isolated else "✗"
    line = " · ".join(_proven(audit, language))
    return (f'<p role="status"><b class="{mark}">{escape(say(language, name))} {sign}</b> {escape(line)}</p>'
            f"{_proofs(audit, language)}")


def _proven(audit: Audit, language: str) -> list[str]:
    worst: Mapping[str, float] = {
        name: max((getattr(proof, f"{name}_max_abs") for proof in audit.questions), default=0.0)
        for name in ("alone", "neighbour", "poison")
    }
    return [
        say(language, "verdict.foreign", allowed=f"{audit.foreign_cells_allowed:,}",
            total=f"{audit.foreign_cells:,}"),
        *(say(language, f"verdict.{name}", value=figure(value)) for name, value in worst.items()),
    ]


def _proofs(audit: Audit, language: str) -> str:
    heads = "".join(
        f'<th scope="col">{escape(say(language, f"proof.{name}"))}</th>'
        for name in ("question", "alone", "tokens", "neighbour", "poison"))
    rows = "".join(
        f'<tr><th scope="row">{escape(proof.question_id)}</th><td>{figure(proof.alone_max_abs)}</td>'
        f"<td>{escape(_tokens_equal(proof.alone_tokens_equal, proof.ties, language))}</td>"
        f"<td>{figure(proof.neighbour_max_abs)}</td><td>{figure(proof.poison_max_abs)}</td></tr>"
        for proof in audit.questions)
    title = escape(say(language, "proof.title"))
    head = f"<details><summary>{title}</summary>"
    return f'{head}<table class="proofs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></details>'


def _tokens_equal(are_equal: bool, ties: int, language: str) -> str:
    if ties:
        return say(language, "proof.ties", count=ties)
    return say(language, "proof.yes" if are_equal else "proof.no")


def figure(value: float) -> str:
    """A small difference as a person writes it: 0, 3e-6, 0.12."""
    if value == 0 or value >= 0.1:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def summary(view: RunView, language: str) -> str:
    """The run in one line: its forwards, the sequences in each, the tokens a second of all answers together."""
    if view.run is None:
        return ""
    stats = view.run.stats
    written = sum(len(card.token_ids) for card in view.cards.values())
    speed = [say(language, "summary.seconds", seconds=f"{stats.seconds:.1f}")]
    if stats.seconds:
        speed.append(say(language, "answer.rate", rate=f"{written / stats.seconds:.1f}"))
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


# the top of the page


def masthead(info: EngineInfo, default: TemperatureVersion, language: str) -> str:
    """The name, what is loaded, and the default temperature with its version."""
    loaded = " · ".join([info.model, info.dtype, info.backend, say(language, "threads", count=info.threads)])
    temperature = say(language, "temperature_default", value=f"{default.value:.2f}", version=default.version)
    return (f'<a class="skip" href="#cards">{escape(say(language, "skip"))}</a>'
            f"<h1>{escape(say(language, 'title'))}</h1>"
            f'<span class="chip">{escape(loaded)}</span><span class="chip">{escape(temperature)}</span>')


def screen(view: RunView, info: EngineInfo, token_texts: TokenTexts, language: str) -> dict[str, str]:
    """Everything of the run tab that a run changes, by the name of its place."""
    shown = {f"answer.{name}": answer(view.cards.get(name), view, name, language) for name in CARD_IDS}
    shown["mask"] = mask_story(view, token_texts, language)
    shown["kv"] = kv_gauge(view, info, language)
    shown["verdict"] = verdict(view, language)
    shown["summary"] = summary(view, language)
    return shown


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def note(key: str, language: str) -> str:
    """The line under the presets: what the chosen one shows."""
    return f'<p class="hint">{escape(say(language, f"{key}.note"))}</p>'


def sentence_line(key: str, language: str, **facts: object) -> str:
    """A sentence about the page itself, in the place of the note."""
    return f'<p class="mistake" role="alert">{escape(say(language, key, **facts))}</p>'
