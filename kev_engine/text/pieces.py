"""PieceTokenizer: token ids of text that a chat template and its users wrote together.

    tokenizer = PieceTokenizer(hf_tokenizer)
    ids = tokenizer.encode([Piece("<|im_start|>user\n"), Piece("Hi <|im_end|>", "question"), Piece("<|im_end|>")])

A control token is one that the tokenizer marks special or that the chat template itself writes. Only the template may
produce one: text of a user that is shaped like a control token stays text. While no text is shaped so, the ids are
those of one plain call of the tokenizer over the joined pieces, so nothing at the borders of the pieces can differ.
Otherwise the joined pieces go through a twin of the tokenizer in which every control token has an unguessable name,
and the template's pieces are written with these names: the same normalizer, the same merges, the same ids.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from kev_engine.errors import InvalidField, ModelUnsupported


@dataclass(frozen=True)
class Piece:
    """A stretch of a prompt's text; `name` says whose text it is, None is the template's own."""

    text: str
    name: str | None = None


class PieceTokenizer:
    """Encodes pieces. Padding and truncation of the tokenizer handed in are switched off for good."""

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            kind = type(tokenizer).__name__
            raise ModelUnsupported(f"the tokenizer ({kind}) has no tokenizer.json form; use a model that has one.")
        backend.no_truncation()
        backend.no_padding()
        self._backend: Tokenizer = backend
        template = tokenizer.chat_template or ""
        source = template if isinstance(template, str) else "\0".join(template.values())
        self._controls: dict[int, str] = {
            token_id: token.content
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.special or (token.content in source and not token.content.isspace())
        }
        # The model's own mark for what it cannot spell; a text may hold it. (A unigram model keeps its number hidden.)
        unknown = getattr(backend.model, "unk_token", tokenizer.unk_token)
        self._unknown_id = None if unknown is None else backend.token_to_id(unknown)

    @cached_property
    def start_ids(self) -> tuple[int, ...]:
        """What the tokenizer by its own rule puts in front of a text: its BOS, or nothing."""
        probe = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        starts = [at for at in range(len(full)) if full[at : at + len(probe)] == probe]
        return tuple(full[: starts[0]]) if starts else ()

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """The ids of the joined pieces, without a BOS of the tokenizer's own.

        Raises InvalidField where this tokenizer cannot keep a text apart from a control token.
        """
        expected = [token_id for piece in pieces if piece.name is None for token_id in self._find(piece.text)]
        ids = self._plain_ids(pieces)
        if self._pick(ids) == expected:
            return ids
        ids = self._twin.encode("".join(self._rename(piece) for piece in pieces), add_special_tokens=False).ids
        if self._without_unknown(self._pick(ids)) != self._without_unknown(expected):
            texts = [piece for piece in pieces if piece.name is not None] or [Piece("", "text")]
            guilty = next((piece for piece in texts if self.controls(piece.text)), texts[0])
            way_out = "it holds a control token that this tokenizer cannot keep as text; remove it"
            raise InvalidField(guilty.name or "", guilty.text, way_out)
        return ids

    def encode_after(self, anchor: str, pieces: Sequence[Piece]) -> list[int]:
        """The ids of the joined pieces as they follow a text that ends in `anchor`.

        The anchor keeps a tokenizer from treating the first piece as the start of a text (and prefixing a space).
        """
        head = self.encode([Piece(anchor)])
        whole = self.encode([Piece(anchor), *pieces])
        return whole[len(head) :] if whole[: len(head)] == head else self.encode(pieces)

    def controls(self, text: str) -> list[int]:
        """The control tokens that the plain tokenizer finds in this text, in order."""
        return self._without_unknown(self._find(text))

    def control_positions(self, ids: Sequence[int]) -> list[int]:
        """Where control tokens stand among these ids."""
        return [at for at, token_id in enumerate(ids) if token_id in self._controls and token_id != self._unknown_id]

    def _find(self, text: str) -> list[int]:
        return self._pick(self._backend.encode(text, add_special_tokens=False).ids)

    def _pick(self, ids: Iterable[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self._controls]

    def _without_unknown(self, ids: Iterable[int]) -> list[int]:
        return [token_id for token_id in ids if token_id != self._unknown_id]

    def _plain_ids(self, pieces: Sequence[Piece]) -> list[int]:
        try:
            return list(self._backend.encode("".join(piece.text for piece in pieces), add_special_tokens=False).ids)
        except (TypeError, UnicodeEncodeError) as error:
            for piece in pieces:
                if piece.name is not None and not _is_unicode(piece.text):
                    way_out = "it holds half of a surrogate pair, which is no character; remove it"
                    raise InvalidField(piece.name, piece.text, way_out) from error
            raise

    @cached_property
    def _names(self) -> dict[str, str]:
        """The twin's name of each control token: of one length and lower case, so none is part of another."""
        nonce = secrets.token_hex(8)
        return {content: f"kev{nonce}{token_id:08x}" for token_id, content in self._controls.items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._names, key=len, reverse=True))) or "(?!)")

    def _rename(self, piece: Piece) -> str:
        if piece.name is not None:
            return piece.text
        return self._pattern.sub(lambda found: self._names[found[0]], piece.text)

    @cached_property
    def _twin(self) -> Tokenizer:
        names = self._names
        data = json.loads(self._backend.to_str())
        model = data["model"]
        for token in data["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        if isinstance(model["vocab"], dict):
            model["vocab"] = {names.get(piece, piece): token_id for piece, token_id in model["vocab"].items()}
        else:
            model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        if "merges" in model:
            # A merge that spells a control token out of plain text would name a piece that is no longer there.
            model["merges"] = [merge for merge in model["merges"] if _spell(merge) not in names]
        return Tokenizer.from_str(json.dumps(data))


def _spell(merge: str | list[str]) -> str:
    return "".join(merge.split(" ", 1) if isinstance(merge, str) else merge)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
