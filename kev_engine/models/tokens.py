"""What a model's tokenizer must hold to, and which tokens end an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from kev_engine.errors import ModelIncomplete

TEMPLATE_TOKEN = re.compile(r"<\|[^<>|\s]+\|>")


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Every special token and its id: the added ones, those with a role, and those the chat template writes."""
    found = {token.content: token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    vocabulary = tokenizer.get_vocab()
    named = set(TEMPLATE_TOKEN.findall(template_text(tokenizer))) | set(tokenizer.all_special_tokens)
    return found | {token: vocabulary[token] for token in sorted(named) if token in vocabulary}


def check_special_tokens(tokenizer: Any, where: str) -> None:
    """Raises ModelIncomplete where a special token is read as anything but its own one id."""
    for token, token_id in special_tokens(tokenizer).items():
        ids = tokenizer.encode(token, add_special_tokens=False)
        if ids != [token_id]:
            raise ModelIncomplete(
                f"the tokenizer of {where} cuts the special token {token!r} (id {token_id}) into {len(ids)} tokens "
                f"{ids[:8]}; put the model's original tokenizer.json into its folder."
            )


def stop_token_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """The ids that end an answer: those of generation_config, the tokenizer's EOS, and the token with which the chat
    template ends an assistant's turn."""
    ids: set[int] = set()
    for given in (getattr(generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        ids.update(given if isinstance(given, Iterable) else [] if given is None else [given])
    turn_end = _turn_end(tokenizer)
    return frozenset(ids if turn_end is None else ids | {turn_end})


def untrained_ids(embedding: torch.Tensor, token_ids: Iterable[int]) -> frozenset[int]:
    """Those of the ids whose row of `embedding` `[V, H]` was never trained: zero, or to the bit that of another id."""
    rows = {token_id: embedding[token_id] for token_id in token_ids if token_id < len(embedding)}
    return frozenset(token_id for token_id, row in rows.items() if not row.any() or _is_repeated(row, embedding))


def _is_repeated(row: torch.Tensor, embedding: torch.Tensor) -> bool:
    alike = embedding[embedding[:, 0] == row[0]]  # few, so that the whole table is not looked through
    return int((alike == row).all(dim=1).sum()) > 1


def _turn_end(tokenizer: Any) -> int | None:
    """The special token that follows the text of an assistant's last message, where the template writes one."""
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        return None
    answer = "yes"
    turns = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": answer}]
    try:
        text: str = tokenizer.apply_chat_template(turns, tokenize=False)
    except (TemplateError, ValueError, TypeError, KeyError):
        # A template that demands other turns says nothing here; generation_config has the ids.
        return None
    rest = text[text.rfind(answer) + len(answer) :]
    specials = special_tokens(tokenizer)
    first = next((token for token in sorted(specials, key=len, reverse=True) if rest.startswith(token)), None)
    return None if first is None else specials[first]


def template_text(tokenizer: Any) -> str:
    """The chat template, or all of them where the model has several by name."""
    template = tokenizer.chat_template or ""
    return template if isinstance(template, str) else "\n".join(template.values())
