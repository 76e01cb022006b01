"""Text and numbers as HTML and JSON: everything that a user wrote passes through here."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from app.i18n import place, say, sentence
from kev_engine.errors import UnreadableFile

if TYPE_CHECKING:
    from app.question_file import QuestionFile

MOST_ROWS = 5
"""More wrong rows of a file than this are counted, not listed."""

_LIVE = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})


def escape(text: object) -> str:
    """The text as HTML that shows it: no markup in it, and nothing a JavaScript template would execute."""
    return html.escape(str(text), quote=True).translate(_LIVE)


def to_json(value: object) -> str:
    """The value for a canvas, as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def note(key: str, language: str) -> str:
    """The line under the presets: what the chosen one shows."""
    return f'<p class="hint">{escape(say(language, f"{key}.note"))}</p>'


def sentence_line(key: str, language: str, **facts: object) -> str:
    """A sentence about the page itself, in the place of the note."""
    return f'<p class="mistake" role="alert">{escape(say(language, key, **facts))}</p>'


def imported(found: QuestionFile, language: str) -> str:
    """What came out of a file: how many cards, and each row that was left out with its reason."""
    count = len(found.board.cards)
    lead = f'<p class="hint">{escape(say(language, "import.done", count=count))}</p>' if count else ""
    rows = [sentence(error, language) if isinstance(error, UnreadableFile)  # which names the place itself
            else f"{place(where, language)}: {sentence(error, language)}"
            for where, error in found.mistakes[:MOST_ROWS]]
    if len(found.mistakes) > MOST_ROWS:
        rows.append(say(language, "import.more", count=len(found.mistakes) - MOST_ROWS))
    return lead + "".join(f'<p class="mistake" role="alert">{escape(row)}</p>' for row in rows)


def mib(size: int) -> str:
    """Bytes in MiB, with the digits a person needs."""
    value = size / 2**20
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def sizes(size: int) -> str:
    """Bytes exactly where they are few, else in decimal and binary units, both named: 2.68 GB = 2.50 GiB."""
    if size < 1000:
        return f"{size:,} B"
    power = min(4, (len(str(size)) - 1) // 3)
    letter = " KMGT"[power]
    decimal, binary = size / 1000**power, size / 1024**power
    exact = f"{size:,} B = " if size < 10**7 else ""
    return f"{exact}{_three(decimal)} {letter if power > 1 else 'k'}B = {_three(binary)} {letter}iB"


def _three(value: float) -> str:
    """About three digits, never in powers of ten."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def figure(value: float) -> str:
    """A small difference as a person writes it: 0, 3e-6, 0.12."""
    if value == 0 or value >= 0.1:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"
