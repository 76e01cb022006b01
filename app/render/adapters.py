"""The adapters tab as HTML: the table of what was read, what was said, and the answers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.adapters_view import BASE_ID, AdaptersView
from app.i18n import say, sentence
from app.render.difference import difference
from app.render.mask import adapter_colour
from app.render.text import escape, figure, mib
from app.run_view import CardView, RunView
from app.told import Told
from kev_engine import KevError

if TYPE_CHECKING:
    from kev_engine.adapters.pool import AdapterInfo
    from kev_engine.runtime.adapter_effect import AdapterEffect

_COLUMNS = ("name", "version", "rank", "alpha", "scale", "modules", "size", "dtype", "place", "uses", "effect")


def table(
    infos: Sequence[AdapterInfo], view: AdaptersView, pool_size: int, is_fixed: bool, language: str
) -> str:
    """What is loaded, one row each, with its actions unless the adapters of this page are fixed."""
    if not infos:
        return f'<p class="hint">{escape(say(language, "adapters.none"))}</p>'
    heads = "".join(
        f'<th scope="col">{escape(say(language, f"adapters.column.{name}"))}</th>' for name in _COLUMNS
    ) + ("" if is_fixed else f'<th scope="col"><span class="sr">{escape(say(language, "actions"))}</span></th>')
    rows = "".join(_row(info, view.effects.get(info.version), is_fixed, language) for info in infos)
    resident = sum(info.is_resident for info in infos)
    line = say(language, "adapters.pool", count=len(infos), resident=resident, places=pool_size,
               size=mib(sum(info.num_bytes for info in infos)))
    return (f'<div class="scroll"><table class="adapters"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
            f'</div><p class="meta">{escape(line)}</p>')


def _row(info: AdapterInfo, effect: AdapterEffect | None, is_fixed: bool, language: str) -> str:
    modules = str(info.modules)
    if info.untouched:
        modules = say(language, "adapters.modules_of", count=info.modules, total=info.modules + info.untouched)
    cells = {
        "version": info.version, "rank": _numbers(info.ranks), "alpha": _numbers(info.alphas),
        "scale": _numbers(info.scales), "modules": modules, "size": f"{mib(info.num_bytes)} MiB",
        "dtype": info.dtype, "place": say(language, f"adapters.{'resident' if info.is_resident else 'offloaded'}"),
        "uses": str(info.uses),
    }
    name = escape(info.name)
    parts = [f'<th scope="row" style="--c: {_variable(adapter_colour(info.adapter_id))}"><span>{name}</span></th>']
    parts += [f'<td data-label="{escape(say(language, f"adapters.column.{key}"))}">{escape(text)}</td>'
              for key, text in cells.items()]
    parts.append(f'<td data-label="{escape(say(language, "adapters.column.effect"))}">'
                 f"{_effect(info, effect, language)}</td>")
    if not is_fixed:
        buttons = "".join(_button(action, info.name, language) for action in ("rename", "replace", "unload"))
        parts.append(f'<td class="tools">{buttons}</td>')
    return f'<tr data-name="{name}">{"".join(parts)}</tr>'


def _button(action: str, name: str, language: str) -> str:
    label = escape(say(language, f"adapters.{action}_label", name=name))
    sure = f' data-sure="{escape(say(language, "adapters.sure"))}"' if action == "unload" else ""
    return (f'<button type="button" class="icon {action}" data-act="{action}" title="{label}" aria-label="{label}"'
            f"{sure}></button>")


def _effect(info: AdapterInfo, effect: AdapterEffect | None, language: str) -> str:
    if info.flaw is not None:
        return _dead(say(language, f"adapters.flaw.{info.flaw}"), language)
    if effect is None:
        return "–"
    if effect.is_dead:
        return _dead(say(language, "adapters.moves", value=figure(effect.max_abs)), language)
    facts = {"value": figure(effect.max_abs), "share": f"{effect.changed:.0%}"}
    title = escape(say(language, "adapters.effect_label", **facts))
    return f'<span title="{title}">{escape(say(language, "adapters.effect", **facts))}</span>'


def _dead(why: str, language: str) -> str:
    return f'<span class="bad"><b>{escape(say(language, "adapters.dead"))}</b> {escape(why)}</span>'


def head(is_fixed: bool, language: str) -> str:
    """What the form is for, or why there is none."""
    note = say(language, "adapters.fixed" if is_fixed else "adapters.form.note")
    return f'<h2>{escape(say(language, "adapters.form"))}</h2><p class="hint">{escape(note)}</p>'


def told(view: AdaptersView, is_form: bool, language: str) -> str:
    """What was said about the last action, where it was taken: in the form or in the table."""
    if view.is_form != is_form:
        return ""
    return "".join(
        f'<p class="mistake" role="alert">{escape(sentence(item, language))}</p>' if isinstance(item, KevError) else
        _told(item, language) for item in view.told
    )


def _told(item: Told, language: str) -> str:
    look = "warn" if item.key.startswith("adapters.warn.") else "soft"
    return f'<p class="{look}" role="status">{escape(say(language, item.key, **item.facts))}</p>'


def comparison(view: AdaptersView, language: str) -> str:
    """The answers of the base and of every adapter to one question; words that the base does not use are marked."""
    if view.mistake is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(view.mistake, language))}</p>'
    run = view.compared
    if run.notice is not None:
        return f'<p class="mistake" role="alert">{escape(sentence(run.notice, language))}</p>'
    base = run.cards.get(BASE_ID)
    return "".join(_answer(name, card, base, run, language) for name, card in run.cards.items())


def _answer(name: str, card: CardView, base: CardView | None, run: RunView, language: str) -> str:
    segments = run.plan.segments if run.plan is not None else ()
    adapter_id = next((segment.adapter_id for segment in segments if segment.name == name), 0)
    title = say(language, "base") if name == BASE_ID else name
    version = card.answer.adapter_version if card.answer is not None else None
    head = f"<b>{escape(title)}</b>" + (f' <span class="soft">{escape(version)}</span>' if version else "")
    text = card.sample(0).text
    facts = [say(language, f"status.{card.status}"), say(language, "answer.tokens", count=len(card.token_ids))]
    body = escape(text)
    if card.error is not None:
        body, facts = f'<span class="mistake">{escape(sentence(card.error, language))}</span>', []
    elif name != BASE_ID and base is not None and card.answer is not None and base.answer is not None:
        found = difference(text.strip(), base.sample(0).text.strip())
        body = "".join(f"<mark>{escape(part)}</mark>" if is_new else escape(part) for part, is_new in found.stretches)
        facts.append(say(language, "adapters.same") if text == base.sample(0).text else
                     say(language, "compare.differs", new=found.num_new, total=found.num_words))
    return (f'<article class="voice" style="--c: {_variable(adapter_colour(adapter_id))}" data-name="{escape(title)}"'
            f' data-status="{escape(card.status)}"><header>{head}</header>'
            f'<p class="text">{body}</p><p class="meta">{escape(" · ".join(facts))}</p></article>')


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values) if len(values) < 4 else f"{values[0]:g}–{values[-1]:g}"


def _variable(colour: int) -> str:
    return f"var(--q{colour})" if colour >= 0 else "var(--shared)"
