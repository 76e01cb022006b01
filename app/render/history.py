"""The list of kept runs, and one of them in full, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from app.i18n import CATALOGUE, say, sentence, spoken
from app.render.mask_svg import colour, mask_svg
from app.render.text import escape, figure, sizes
from app.run_record import Segment

if TYPE_CHECKING:
    from app.board import CardValues
    from app.history import Found, RunRow
    from app.run_record import RunRecord
    from kev_engine import KevError

Json = Mapping[str, Any]


def when(at: str) -> str:
    """A time as people read it; records keep UTC."""
    return f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M:%S} UTC"


def line(text: str, is_mistake: bool = False) -> str:
    """One sentence about the history itself."""
    if not text:
        return ""
    kind = 'class="mistake" role="alert"' if is_mistake else 'class="hint" role="status"'
    return f"<p {kind}>{escape(text)}</p>"


def error_line(error: KevError, language: str) -> str:
    return line(sentence(error, language), is_mistake=True)


def run_list(found: Found, opened: int | None, is_search: bool, language: str) -> str:
    """The runs as buttons, newest first, the opened one marked; above them the button that brings one from a file."""
    tools = (f'<p class="tools-line"><button type="button" class="quiet" data-import>'
             f"{escape(say(language, 'history.import'))}</button></p>")
    if not found.rows:
        return tools + line(say(language, "history.nothing" if is_search else "history.empty"))
    rows = "".join(_row(row, row.id == opened, language) for row in found.rows)
    more = ""
    if found.total > len(found.rows):
        more = line(say(language, "history.more", shown=len(found.rows), total=found.total))
    return f'{tools}<ul class="runs">{rows}</ul>{more}'


def _row(row: RunRow, is_opened: bool, language: str) -> str:
    facts = [when(row.at), row.model, say(language, "history.questions", count=row.num_questions)]
    verdict = ""
    if row.isolated is not None:
        mark, key = ("ok", "history.isolated") if row.isolated else ("bad", "history.leaks")
        verdict = f' · <b class="{mark}">{escape(say(language, key))}</b>'
    current = ' aria-current="true"' if is_opened else ""
    return (f'<li><button type="button" data-run="{row.id}"{current}><span class="first">{escape(row.first_question)}'
            f'</span><span class="facts">{escape(" · ".join(facts))}{verdict}</span></button></li>')


def run_detail(record: RunRecord, language: str) -> str:
    """Everything that is known of one run: facts, each question with its answers, the mask."""
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in _facts(record, language))
    title = say(language, "record.run", at=when(record.at))
    cards = "".join(_card(record, letter, card, language) for letter, card in record.board.cards.items())
    shared = "".join(
        f'<details class="shared"><summary>{escape(say(language, "record.shared", name=one.name))}</summary>'
        f"<p>{escape(one.text)}</p></details>" for one in record.board.shared)
    return (f'<article class="record"><h2>{escape(title)}</h2><dl class="figures">{facts}</dl>{shared}{cards}'
            f"{mask_svg(record, language)}</article>")


def _facts(record: RunRecord, language: str) -> list[tuple[str, str]]:
    engine, run = record.engine, record.run
    rows = [
        ("record.model", f"{_get(engine, 'model')} · {_get(engine, 'digest')[:16]}"),
        ("record.engine", " · ".join(_get(engine, key) for key in ("dtype", "kv_dtype", "backend", "device"))),
    ]
    if record.adapters:
        told = " · ".join(f"{name} {digest[:16]}" for name, digest in record.adapters.items())
        rows.append(("record.adapters", told))
    seconds, forwards = run.get("seconds"), run.get("forwards")
    if isinstance(seconds, (int, float)) and seconds > 0:
        written = sum(len(answer["token_ids"]) for answer in record.answers)
        rows.append(("record.time", say(language, "record.seconds", seconds=f"{seconds:.2f}", forwards=forwards,
                                        rate=f"{written / seconds:.1f}")))
    if isinstance(run.get("kv_bytes_peak"), int) and isinstance(run.get("kv_bytes_predicted"), int):
        rows.append(("record.memory", say(language, "record.peak", peak=sizes(run["kv_bytes_peak"]),
                                          predicted=sizes(run["kv_bytes_predicted"]))))
    rows.append(("record.versions", " · ".join(f"{name} {number}" for name, number in record.versions.items())))
    if record.notice is not None:
        rows.append(("record.notice", record.notice))
    shown = [(say(language, key), escape(value)) for key, value in rows]
    return [*shown, (say(language, "record.audit"), _audit(record.audit, language))]


def _audit(audit: Json | None, language: str) -> str:
    if audit is None:
        return escape(say(language, "record.no_audit"))
    is_isolated = bool(audit.get("isolated"))
    mark, key = ("ok", "history.isolated") if is_isolated else ("bad", "history.leaks")
    parts = []
    proofs = audit.get("questions")
    proofs = [proof for proof in proofs if isinstance(proof, dict)] if isinstance(proofs, list) else []
    for name in ("alone", "neighbour", "poison"):
        values = [proof.get(f"{name}_max_abs") for proof in proofs]
        numbers = [float(value) for value in values if isinstance(value, (int, float))]
        if numbers:
            parts.append(say(language, f"verdict.{name}", value=figure(max(numbers))))
    if audit.get("fault"):
        parts.append(say(language, "record.fault", name=audit["fault"]))
    return f'<b class="{mark}">{escape(say(language, key))}</b> {escape(" · ".join(parts))}'


def _card(record: RunRecord, letter: str, card: CardValues, language: str) -> str:
    paint = colour(Segment(letter, 0, 0))
    head = [letter, card.adapter or say(language, "record.base")]
    if card.shared:
        head.append(say(language, "record.shared", name=card.shared))
    folded = "".join(
        f'<details><summary>{escape(say(language, f"record.{name}"))}</summary><p>{escape(text)}</p></details>'
        for name in ("context", "system") if (text := getattr(card, name)))
    answers = "".join(_answer(answer, language) for answer in record.answers_of(letter))
    if letter in record.refused:
        answers += line(spoken(record.refused[letter], language), is_mistake=True)
    if not answers:
        answers = line(say(language, "record.no_answer"))
    return (f'<section class="asked" style="--c:{paint}"><p class="head">{escape(" · ".join(head))}</p>'
            f'<p class="question">{escape(card.question)}</p>{folded}{answers}</section>')


def _answer(answer: Json, language: str) -> str:
    reason = str(answer.get("finish_reason"))
    facts = [say(language, f"status.{reason}") if f"status.{reason}" in CATALOGUE else reason,
             say(language, "record.tokens", count=len(answer["token_ids"]))]
    for key in ("ttft", "tpot"):
        value = answer.get(f"{key}_ms")
        if isinstance(value, (int, float)):
            facts.append(say(language, f"record.{key}", ms=f"{value:.1f}"))
    if answer.get("adapter_version"):
        facts.append(str(answer["adapter_version"])[:16])
    if answer.get("sample"):
        facts.insert(0, say(language, "record.sample", number=answer["sample"]))
    error = line(spoken(str(answer["error"]), language), is_mistake=True) if answer.get("error") else ""
    return (f'<p class="text">{escape(answer["text"])}</p>{error}'
            f'<p class="meta">{escape(" · ".join(facts))}</p>'
            f'<p class="meta">{escape(say(language, "record.drawn"))} {escape(sampling(answer))}</p>')


def sampling(answer: Json) -> str:
    """The whole tuple that an answer was drawn with, in one line."""
    return ", ".join(f"{name} {'→'.join(map(str, value)) if isinstance(value, list) else value}"
                     for name, value in answer["sampling"].items())


def _get(values: Json, key: str) -> str:
    return str(values.get(key, "—"))
