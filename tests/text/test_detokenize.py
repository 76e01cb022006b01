"""Deltas: joined they are the decoded text, and no character is shown before it is whole."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from kev_engine.text.detokenize import Detokenizer
from tests.text.made import llama_like

SOAK = os.environ.get("KEV_SOAK") == "1"
SLICE = settings(
    max_examples=2000 if SOAK else 100, derandomize=not SOAK, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def deltas(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push([token_id]) for token_id in ids), detokenizer.flush()]


def with_pieces(pieces: Sequence[str], decoder: Any) -> Any:
    """A tokenizer whose token k is pieces[k]."""
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_level(token_bytes: Sequence[str]) -> Any:
    letters = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in letters]
    letter_of = {byte: chr(byte) for byte in letters} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return with_pieces(["".join(letter_of[byte] for byte in bytes.fromhex(token)) for token in token_bytes],
                       decoders.ByteLevel())


def sentencepiece(pieces: Sequence[str]) -> Any:
    return with_pieces(pieces, decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))


@pytest.mark.parametrize(("case", "token_bytes", "expected"), [
    ("BR-143 emoji over two tokens", ["f09f", "9880"], ["", "😀"]),
    ("BR-145 Chinese character over two tokens", ["e7a4", "be"], ["", "社"]),
    ("BR-147 space in front of an unfinished character", ["20e4bd", "a0"], [" ", "你"]),
    ("BR-148 one byte a token", ["e6", "88", "91"], ["", "", "我"]),
])
def test_characters_over_several_tokens(case: str, token_bytes: list[str], expected: list[str]) -> None:
    assert deltas(byte_level(token_bytes), range(len(token_bytes))) == [*expected, ""], case


@pytest.mark.parametrize("character", ["我", "😀", "é"])
def test_byte_fallback_waits_for_the_whole_character(character: str) -> None:
    tokens = [f"<0x{byte:02X}>" for byte in character.encode()]
    tokenizer = sentencepiece([*tokens, "▁Hello"])
    ids = range(len(tokens) + 1)
    assert deltas(tokenizer, ids) == ["", *[""] * (len(tokens) - 2), character, " Hello", ""]
    assert deltas(tokenizer, ids[:-1])[-2:] == [character, ""]


def test_leading_spaces_of_pieces() -> None:
    """BR-149: the space in front of a piece belongs to the text unless the text starts with it."""
    tokenizer = sentencepiece(["▁Hello", "▁world"])
    assert deltas(tokenizer, [0, 1]) == ["Hello", " world", ""]
    assert deltas(tokenizer, [1, 1, 0]) == ["world", " world", " Hello", ""]


def test_what_never_becomes_a_character_is_marked_once_at_the_end() -> None:
    tokenizer = byte_level(["61", "e6", "88"])
    assert deltas(tokenizer, [0, 1, 2]) == ["a", "", "", "�"]
    assert deltas(tokenizer, [1, 0]) == ["", "�a", ""]


def test_a_broken_run_of_byte_tokens_keeps_its_whole_characters() -> None:
    tokenizer = sentencepiece([*(f"<0x{byte:02X}>" for byte in "我".encode()), "a"])
    assert "".join(deltas(tokenizer, [0, 1, 2, 0, 3])) == "我�a"


@pytest.mark.parametrize("text", [
    "Hello world", " leading", "trailing \n", "天空是蓝色的。\n\n为什么？", "👩\u200d👩\u200d👧 and 😀", "naïve café",
    "a\tb\r\n c", "  two  ",
])
def test_text_comes_back(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    parts = deltas(tokenizer, ids)
    assert "".join(parts) == decoded(tokenizer, ids)


@SLICE
@given(data=st.data())
def test_joined_deltas_are_the_decoded_text(tokenizer: Any, data: st.DataObject) -> None:
    """Random ids, special ones and ids beyond the vocabulary included; with byte fallback only runs that are whole."""
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) + 5), max_size=30))
    if "ByteFallback" in str(tokenizer.backend_tokenizer.decoder):
        ids = [token_id for token_id in ids if not tokenizer.convert_ids_to_tokens(token_id, False)
               or not tokenizer.convert_ids_to_tokens(token_id).startswith("<0x")]
    sizes = st.integers(1, 4)
    detokenizer, parts, left = Detokenizer(tokenizer), [], list(ids)
    while left:
        size = data.draw(sizes)
        parts.append(detokenizer.push(left[:size]))
        left = left[size:]
    known = [token_id for token_id in ids if token_id < len(tokenizer)]
    assert "".join(parts) + detokenizer.flush() == decoded(tokenizer, known)


@SLICE
@given(text=st.text(max_size=12))
def test_whole_texts_over_byte_fallback(text: str) -> None:
    tokenizer = LLAMA
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert "".join(deltas(tokenizer, ids)) == decoded(tokenizer, ids)


@SLICE
@given(cuts=st.lists(st.integers(1, 3), min_size=1, max_size=40), text=st.text(min_size=1, max_size=20))
def test_no_mark_is_shown_that_a_later_byte_mends(cuts: list[int], text: str) -> None:
    raw = text.replace("�", "").encode()
    tokens, at = [], 0
    for cut in [*cuts, len(raw)]:
        if at < len(raw):
            tokens.append(raw[at : at + cut].hex())
        at += cut
    if not tokens:
        return
    unique = sorted(set(tokens))
    parts = deltas(byte_level(unique), [unique.index(token) for token in tokens])
    assert "".join(parts) == raw.decode()
    assert "�" not in "".join(parts)


def test_special_tokens_between_the_bytes_of_a_character(embedded_tokenizer: Any) -> None:
    first, second = (embedded_tokenizer.backend_tokenizer.token_to_id(letter) for letter in "Ã©")
    ids = [first, embedded_tokenizer.eos_token_id, second]
    assert deltas(embedded_tokenizer, ids) == ["", "", "é", ""]


def test_a_token_costs_the_same_however_long_the_text(embedded_tokenizer: Any) -> None:
    ids = embedded_tokenizer("The quick brown fox. 天空是蓝色的。 " * 400)["input_ids"]
    early, late = [], []
    for _ in range(3):
        detokenizer = Detokenizer(embedded_tokenizer)
        for seconds, part in ((early, ids[:500]), ([], ids[500:-500]), (late, ids[-500:])):
            started = time.perf_counter()
            for token_id in part:
                detokenizer.push([token_id])
            seconds.append(time.perf_counter() - started)
    assert min(late) < 5 * min(early)


LLAMA = llama_like()
