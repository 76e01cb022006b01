from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kev_engine.errors import ModelIncomplete
from kev_engine.models.tokens import check_special_tokens, special_tokens, stop_token_ids, untrained_ids
from tests.models.tiny import tiny_tokenizer


def generation(eos: Any) -> SimpleNamespace:
    return SimpleNamespace(eos_token_id=eos)


def test_special_tokens_are_the_added_and_the_named_ones() -> None:
    assert special_tokens(tiny_tokenizer()) == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}


def test_a_whole_tokenizer_passes() -> None:
    check_special_tokens(tiny_tokenizer(), "tiny")


def test_a_special_token_cut_into_pieces_is_refused() -> None:
    """BR-160: the token stands in the vocabulary and the template, but text of its shape is read as its letters."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.model = type(tokenizer.backend_tokenizer.model)(
        vocab={**tokenizer.get_vocab(), "<|eot_id|>": len(tokenizer)}, merges=[]
    )
    tokenizer.chat_template = "{{ messages[0]['content'] }}<|eot_id|>"
    with pytest.raises(ModelIncomplete, match=r"cuts the special token '<\|eot_id\|>' \(id 317\) into 10 tokens"):
        check_special_tokens(tokenizer, "tiny")


@pytest.mark.parametrize(("eos", "ids"), [(None, {2}), (2, {2}), (0, {0, 2}), ([5, 3], {2, 3, 5})])
def test_stop_ids_are_gathered_from_all_who_name_one(eos: Any, ids: set[int]) -> None:
    assert stop_token_ids(tiny_tokenizer(), generation(eos)) == ids


def test_the_templates_end_of_turn_stops_though_nobody_else_names_it() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    assert stop_token_ids(tokenizer, generation(0)) == {0, 2}


@pytest.mark.parametrize("template", [
    None,
    "{{ raise_exception('system first') }}",
    "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
])
def test_a_template_without_an_end_of_turn_adds_nothing(template: str | None) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.chat_template = template
    assert stop_token_ids(tokenizer, generation(None)) == {0}


def test_a_row_of_zeros_and_one_that_another_id_has_too_were_never_trained() -> None:
    embedding = torch.tensor([[1.0, 2], [1, 3], [0, 0], [1, 2], [4, 5]])
    assert untrained_ids(embedding, range(9)) == {0, 2, 3}
    assert untrained_ids(embedding, [1, 4]) == set()
