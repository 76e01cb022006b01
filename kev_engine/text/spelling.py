"""The bytes that each token stands for: what a strip of tokens shows, and where a character is cut in two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kev_engine.text.detokenize import BYTE_OF, BYTE_TOKEN

SPACE = "▁"
"""How vocabularies that are not of bytes write a space."""


def token_bytes(tokenizer: Any, token_ids: Iterable[int]) -> list[bytes]:
    """The bytes of each token, whole characters or parts of one; empty for an id beyond the vocabulary."""
    backend = tokenizer.backend_tokenizer
    is_byte_level = "ByteLevel(" in str(backend.decoder)
    added = {token_id: token.content for token_id, token in tokenizer.added_tokens_decoder.items()}
    return [_bytes_of(added.get(token_id), backend.id_to_token(token_id), is_byte_level) for token_id in token_ids]


def _bytes_of(added: str | None, token: str | None, is_byte_level: bool) -> bytes:
    # An added token is written as it reads, not in the alphabet of the vocabulary.
    if added is not None or token is None:
        return (added or "").encode()
    if is_byte_level and all(character in BYTE_OF for character in token):
        return bytes(BYTE_OF[character] for character in token)
    if found := BYTE_TOKEN.fullmatch(token):
        return bytes([int(found[1], 16)])
    return token.replace(SPACE, " ").encode()
