"""What is said about the engine itself: how far a model is, the new default temperature, or a refusal."""

from __future__ import annotations

from app.i18n import say, sentence
from app.render.text import escape, sizes
from app.told import Told
from kev_engine import KevError

_SIZES = ("done", "total", "needed")


def model_told(item: Told | KevError | None, language: str) -> str:
    """The sentence, with a bar where a part of a whole is known."""
    if item is None:
        return ""
    if isinstance(item, KevError):
        return f'<p class="mistake" role="alert">{escape(sentence(item, language))}</p>'
    facts = dict(item.facts)
    done, total = facts.get("done"), facts.get("total")
    label = escape(say(language, "model.load"))
    bar = f'<progress aria-label="{label}" value="{done}" max="{total}"></progress>' if total else ""
    key = f"{item.key}_unknown" if "needed" in facts and facts["needed"] is None else item.key
    for name in _SIZES:
        if isinstance(value := facts.get(name), int):
            facts[name] = sizes(value)
    return f'<p role="status">{escape(say(language, key, **facts))}</p>{bar}'
