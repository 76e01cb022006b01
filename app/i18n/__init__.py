"""One catalogue, two languages: every word of the page, for gr.I18n, for Python and for the canvas. One file a tab."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter

from app.i18n import adapters, doctor, explain, fault_lab, history, memory, model, page, refusals, run, tour
from app.i18n.ways import in_chinese
from kev_engine.errors import KevError

EN, ZH = "en", "zh-CN"
LANGUAGES = (EN, ZH)

PARTS = (
    page.WORDS, run.WORDS, explain.WORDS, fault_lab.WORDS, doctor.WORDS, memory.WORDS, history.WORDS, adapters.WORDS,
    refusals.WORDS, model.WORDS, tour.WORDS,
)
CATALOGUE: Mapping[str, tuple[str, str]] = {key: pair for part in PARTS for key, pair in part.items()}

PLURAL = re.compile(r"\{(\w+)\|([^|{}]*)\|([^|{}]*)\}")
"""`{count|step|steps}`: one word where the fact is 1, another where it is not."""
_POSITION = {language: index for index, language in enumerate(LANGUAGES)}


def say(language: str, key: str, /, **facts: object) -> str:
    """The text of `key` in `language`, with its placeholders filled from `facts`."""
    text = PLURAL.sub(lambda found: found[2 if str(facts[found[1]]) == "1" else 3], CATALOGUE[key][_POSITION[language]])
    return text.format(**facts)


def texts(language: str) -> dict[str, str]:
    """Every text of one language by its key, placeholders unfilled: what the browser gets."""
    return {key: pair[_POSITION[language]] for key, pair in CATALOGUE.items()}


def placeholders(text: str) -> set[str]:
    """The names between braces."""
    return {name.partition("|")[0] for _, name, _, _ in Formatter().parse(text) if name}


def sentence(error: KevError, language: str) -> str:
    """The error as one sentence in `language`, from its code and facts."""
    facts = dict(error.facts)
    for name in ("way_out", "where", "what") if language == ZH else ():
        if isinstance(facts.get(name), str):
            facts[name] = in_chinese(str(facts[name]))
    field = str(facts.get("field", ""))
    if error.code == "invalid_field":
        name = say(language, f"field.{field}") if f"field.{field}" in CATALOGUE else field
        if field == "question":
            return say(language, "error.empty", field=name)
        if f"way.{field}" in CATALOGUE:
            way = say(language, f"way.{field}")
            return say(language, "error.field", field=name, value=facts["value"], way=way)
        return say(language, "error.invalid_field", field=name, value=facts["value"], way_out=facts["way_out"])
    if error.code == "unusable_logits" and language == ZH:
        facts["reason"] = in_chinese(str(facts["reason"]))
    if error.code in ("limit_text", "limit_tokens"):
        facts["field"] = say(language, f"field.{field}")
    if error.code == "prompt_too_long":
        facts["holder"] = say(language, f"limit.{facts['holder']}")
    if error.code == "adapter_refused" and facts["kind"]:
        facts["reason"] = _reason(facts, language)
    if error.code == "unknown_adapter" and facts["nearest"]:
        return say(language, "error.unknown_adapter_near", **facts)
    key = f"error.{error.code}"
    if f"{key}.{facts.get('reason')}" in CATALOGUE:
        key = f"{key}.{facts['reason']}"
    return say(language, key, **facts) if key in CATALOGUE else spoken(str(error), language)


def spoken(message: str, language: str) -> str:
    """What the engine said in English, in `language`; what has no Chinese is quoted as the engine's words."""
    chinese = in_chinese(message) if language == ZH else ""
    return chinese if chinese and chinese != message else say(language, "error.other", message=message)


def place(where: str, language: str) -> str:
    """Where in a file something stands, as in `line 3`."""
    return in_chinese(where) if language == ZH else where


def _reason(facts: Mapping[str, object], language: str) -> str:
    reason = say(language, f"refused.{facts['kind']}", **facts)
    return reason + (say(language, "refused.trained_on", **facts) if "base" in facts else "")
