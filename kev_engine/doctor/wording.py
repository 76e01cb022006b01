"""Wording: the sentences of findings, from a table for each language: a message and a repair a code and variant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from kev_engine.doctor.chinese import CHINESE, TERMS
from kev_engine.doctor.english import ENGLISH

Part = Literal["message", "repair"]
CATALOGUES: Mapping[str, Mapping[str, tuple[str, str]]] = {"en": ENGLISH, "zh-CN": CHINESE}
LONGEST_LIST = 12
# The English table counts in the plural; one of a kind is said as one.
SINGLE = {"cells": "cell", "pairs": "pair", "query rows": "query row", "padding rows": "padding row",
          "queries": "query", "layers": "layer", "tokens": "token", "segments": "segment", "zeros": "zero"}
SINGULAR = re.compile(rf"\b(?<![\d.,−-])1 ({'|'.join(SINGLE)})\b")
# Facts that are words of ours, and so have another word in another language.
SPOKEN = ("source", "obeyed", "consumer", "reads", "kind", "some", "side")


def render(key: str, facts: Mapping[str, Any], part: Part, language: str = "en") -> str:
    """The sentence for a key, filled with facts; long lists are shortened in the sentence only."""
    template = CATALOGUES[language][key][part == "repair"]
    terms: Mapping[str, str] = TERMS if language != "en" else {}
    text = template.format(**{
        name: terms.get(value, value) if name in SPOKEN and isinstance(value, str) else _short(value, terms)
        for name, value in facts.items()
    })
    return SINGULAR.sub(lambda found: f"1 {SINGLE[found[1]]}", text) if language == "en" else text


def _short(value: Any, terms: Mapping[str, str]) -> Any:
    """A fact as a sentence shows it: null reads `any` inside a list and `unknown` alone."""
    if value is None:
        return terms.get("unknown", "unknown")
    if isinstance(value, list | tuple):
        any_ = terms.get("any", "any")
        entries = [any_ if entry is None else str(_short(entry, terms)) for entry in value[:LONGEST_LIST]]
        more = terms.get("… {count} in all", "… {count} in all").format(count=len(value))
        return f"[{', '.join(entries + [more] * (len(value) > LONGEST_LIST))}]"
    return value
