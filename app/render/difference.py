"""Which words of a text are not in another, in order: the longest common subsequence of words, spaces apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

# A character of a script without spaces is a word of its own.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]|\s+|(?:(?![\u3040-\u30ff\u3400-\u9fff"
                   r"\uac00-\ud7af\uf900-\ufaff])\w)+|.", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """A text cut into stretches, those that the other text lacks marked; `num_new` of its `num_words` words are."""

    stretches: tuple[tuple[str, bool], ...]
    num_new: int
    num_words: int


def difference(text: str, other: str) -> Difference:
    """What `text` says that `other` does not."""
    pieces: list[str] = _WORD.findall(text)
    places = [index for index, piece in enumerate(pieces) if not piece.isspace()]
    words = [pieces[index] for index in places]
    matcher = SequenceMatcher(None, _words(other), words, autojunk=False)
    is_new = [True] * len(words)
    for _, start, size in matcher.get_matching_blocks():
        is_new[start : start + size] = [False] * size
    marks = dict(zip(places, is_new, strict=True))
    # A space is marked where the words on both sides are.
    flags = [marks.get(index, marks.get(index - 1, False) and marks.get(index + 1, False))
             for index in range(len(pieces))]
    grouped = groupby(zip(pieces, flags, strict=True), key=lambda pair: pair[1])
    stretches = tuple(("".join(piece for piece, _ in group), flag) for flag, group in grouped)
    return Difference(stretches, sum(is_new), len(words))


def _words(text: str) -> list[str]:
    return [piece for piece in _WORD.findall(text) if not piece.isspace()]
