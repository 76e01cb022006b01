"""Detokenizer: readable text from tokens as they come.

    detokenizer = Detokenizer(hf_tokenizer)
    text = detokenizer.push([token_id, …])     # new readable text, often ""
    text = detokenizer.flush()                 # what is left at the end

The joined texts equal `tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)`. A
character
whose bytes are still arriving is held back, so a replacement mark appears only for bytes that no later token can mend.
One exception: where a tokenizer with byte fallback decodes a run of byte tokens as a whole and one of them is broken,
`decode` gives up the run; here its whole characters, which were already shown, stay.

Each token costs the same, however long the text: one table look-up, or a decode of two tokens.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable bytes themselves, then 256 + n."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_level_alphabet()


class Detokenizer:
    """The text of one growing answer. Ids beyond the vocabulary and special tokens have no text."""

    def __init__(self, tokenizer: Any) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._special_ids = {
            token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        kind = str(self._backend.decoder)
        self._is_byte_level = "ByteLevel(" in kind
        self._has_byte_fallback = "ByteFallback(" in kind
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._previous_id: int | None = None

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        return "".join(map(self._text_of, token_ids))

    def flush(self) -> str:
        """The rest: a replacement mark for a character that was never completed, or nothing."""
        return self._utf8.decode(b"", final=True)

    def _text_of(self, token_id: int) -> str:
        token = self._backend.id_to_token(token_id)
        if token is None or token_id in self._special_ids:
            return ""
        previous_id, self._previous_id = self._previous_id, token_id
        if self._is_byte_level:
            return self._utf8.decode(self._bytes_of(token))
        if self._has_byte_fallback and (found := BYTE_TOKEN.fullmatch(token)):
            return self._utf8.decode(bytes([int(found[1], 16)]))
        return self.flush() + self._decode_after(previous_id, token_id)

    def _bytes_of(self, token: str) -> bytes:
        try:
            return bytes([BYTE_OF[character] for character in token])
        except KeyError:  # an added token is written as it reads, not in the byte alphabet
            return token.encode()

    def _decode_after(self, previous_id: int | None, token_id: int) -> str:
        """The token's text behind its forerunner; decoders look at most one token back (spaces, word pieces)."""
        if previous_id is None:
            return str(self._backend.decode([token_id]))
        return str(self._backend.decode([previous_id, token_id]))[len(self._backend.decode([previous_id])) :]
