"""A batch description out of texts: the pieces of a prompt, the template around each, and the intervals recorded.

What the tokenizer makes of the joined text says which tokens each piece really has; the mask and the positions are
built from the recorded intervals, as a program would have built them. The doctor then compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kev_engine.doctor.batch import Interval
from kev_engine.errors import InvalidField
from kev_engine.text.pieces import PieceTokenizer
from kev_engine.text.spelling import token_bytes

CHAT = "chat"
SLOT = "{text}"
TEXT, TEMPLATE, SPECIAL = "text", "template", "special"


@dataclass(frozen=True)
class Encoded:
    """The joined text as tokens: ids, offsets in characters, the piece each belongs to, and who wrote it."""

    ids: tuple[int, ...]
    offsets: tuple[Interval, ...]
    owners: tuple[int, ...]
    roles: tuple[str, ...]


def describe(tokenizer: Any, pieces: Sequence[str], template: str = "", recorded: Sequence[Interval] | None = None,
             add_special_tokens: bool = True) -> dict[str, Any]:
    """The description, with the keys of docs/doctor.md.

    `template` holds `{text}` where a piece belongs; empty stands for the piece alone, `chat` for the tokenizer's own
    chat template with each piece as a user's message. `recorded` are half-open token intervals, one a piece; None
    takes those that follow from tokenizing each piece by itself. Raises InvalidField.
    """
    if not pieces or not all(pieces):
        raise InvalidField("pieces", list(pieces), "there must be at least one piece, and each must hold some text")
    parts = [_filled(tokenizer, template, piece) for piece in pieces]
    whole = "".join(before + text + after for before, text, after in parts)
    encoded = _encode(tokenizer, whole, parts, add_special_tokens)
    total = len(encoded.ids)
    if total == 0:
        raise InvalidField("pieces", list(pieces), "this tokenizer makes no token of them")
    if recorded is None:
        recorded = _separately(tokenizer, parts, add_special_tokens)
    elif len(recorded) != len(pieces):
        way_out = f"there must be one interval for each of the {len(pieces)} pieces"
        raise InvalidField("recorded", list(recorded), way_out)
    blocks = _blocks(recorded, total)
    spelt = token_bytes(tokenizer, encoded.ids)
    start_ids = PieceTokenizer(tokenizer).start_ids
    description: dict[str, Any] = {
        "segments": _segments(encoded.owners, len(pieces)),
        "spans": {_name(index): list(interval) for index, interval in enumerate(recorded)},
        "attention_mask": {"block_causal": blocks, "repeat": [1, 1]}, "mask_dtype": "bool", "consumer": "sdpa",
        "position_ids": [place for length in blocks for place in range(length)], "position_kind": "rope",
        "input_ids": list(encoded.ids), "tokens": [data.decode("utf-8", "replace") for data in spelt],
        "token_bytes": [data.hex() for data in spelt],
        "token_offsets": [list(pair) for pair in encoded.offsets], "token_roles": list(encoded.roles),
    }
    if len(start_ids) == 1 and add_special_tokens:
        description["bos_token_id"] = start_ids[0]
    merged = _merged(tokenizer, whole, parts)
    if merged is not None:
        description["paths"] = merged
    markers = _markers(tokenizer, parts)
    if markers:
        description["template_markers"] = markers
    return description


def _name(index: int) -> str:
    return chr(65 + index) if index < 26 else str(index)


def _filled(tokenizer: Any, template: str, piece: str) -> tuple[str, str, str]:
    """What stands before the piece, the piece, and what stands behind it."""
    if not template:
        return "", piece, ""
    if template != CHAT:
        if template.count(SLOT) != 1:
            raise InvalidField("template", template, f"it must hold {SLOT} once, or be empty, or {CHAT}")
        before, _, after = template.partition(SLOT)
        return before, piece, after
    if not tokenizer.chat_template:
        raise InvalidField("template", template, "this tokenizer has no chat template")
    try:
        text: str = tokenizer.apply_chat_template([{"role": "user", "content": piece}], tokenize=False,
                                                  add_generation_prompt=True)
    except Exception as trouble:  # a template may raise anything: it is a program that came with the model
        raise InvalidField("template", template, f"the chat template refuses the piece: {trouble}") from trouble
    inner = piece if piece in text else piece.strip()
    before, found, after = text.rpartition(inner)
    return (before, inner, after) if found else ("", text, "")


def _encode(tokenizer: Any, whole: str, parts: Sequence[tuple[str, str, str]], add_special_tokens: bool) -> Encoded:
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    made = backend.encode(whole, add_special_tokens=add_special_tokens)
    specials = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    texts, ends, place = [], [], 0
    for before, text, after in parts:
        texts.append((place + len(before), place + len(before) + len(text)))
        place += len(before) + len(text) + len(after)
        ends.append(place)
    owners: list[int] = []
    roles: list[str] = []
    owner = 0
    for index, (token_id, (start, end)) in enumerate(zip(made.ids, made.offsets, strict=True)):
        if made.special_tokens_mask[index] and start == end:
            # What the tokenizer adds by its own rule has no text; it goes with its neighbour.
            roles.append(SPECIAL)
        else:
            owner = next((k for k, last in enumerate(ends) if start < last), len(parts) - 1)
            low, high = texts[owner]
            roles.append(SPECIAL if token_id in specials else TEXT if start < high and end > low else TEMPLATE)
        owners.append(owner)
    return Encoded(tuple(made.ids), tuple(map(tuple, made.offsets)), tuple(owners), tuple(roles))


def _separately(tokenizer: Any, parts: Sequence[tuple[str, str, str]], add_special_tokens: bool) -> list[Interval]:
    """The intervals that follow from tokenizing each piece by itself."""
    place, found = 0, []
    for before, text, after in parts:
        made = tokenizer.backend_tokenizer.encode(before + text + after, add_special_tokens=add_special_tokens)
        found.append((place, place + len(made.ids)))
        place += len(made.ids)
    return found


def _segments(owners: Sequence[int], count: int) -> list[list[int]]:
    """The tokens of each piece; a piece without a token of its own is an empty interval at its place."""
    found, place = [], 0
    for piece in range(count):
        size = sum(1 for owner in owners if owner == piece)
        found.append([place, place + size])
        place += size
    return found


def _blocks(recorded: Sequence[Interval], total: int) -> list[int]:
    """The lengths of the blocks a mask built from the intervals has; a token that none covers reads only itself."""
    lengths, place = [], 0
    for start, end in sorted(recorded):
        start, end = max(start, place), min(end, total)
        if start >= end:
            continue
        lengths += [1] * (start - place) + [end - start]
        place = end
    return lengths + [1] * (total - place)


def _merged(tokenizer: Any, whole: str, parts: Sequence[tuple[str, str, str]]) -> dict[str, list[int]] | None:
    """The first border over which a token grows, as the two ways of tokenizing; None where there is none."""
    full = tokenizer.backend_tokenizer.encode(whole, add_special_tokens=False).ids
    place = 0
    for before, text, after in parts[:-1]:
        place += len(before) + len(text) + len(after)
        head = tokenizer.backend_tokenizer.encode(whole[:place], add_special_tokens=False).ids
        if full[: len(head)] != head:
            return {"prompt": list(head), "full": list(full)}
    return None


def _markers(tokenizer: Any, parts: Sequence[tuple[str, str, str]]) -> dict[str, list[int]]:
    """The markers that the template writes, as this tokenizer encodes each."""
    from kev_engine.models.tokens import TEMPLATE_TOKEN

    written = {marker for before, _, after in parts for marker in TEMPLATE_TOKEN.findall(before + after)}
    return {marker: list(tokenizer.backend_tokenizer.encode(marker, add_special_tokens=False).ids)
            for marker in sorted(written)}
