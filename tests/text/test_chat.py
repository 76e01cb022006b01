"""Prompts: the ids of apply_chat_template for ordinary text, and text for whatever looks like a control token."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kev_engine.errors import InvalidField, ModelUnsupported
from kev_engine.schema import Message, Question, SharedContext
from kev_engine.text.chat import ChatEncoder, Prompt
from tests.models.tiny import tiny_tokenizer
from tests.text import made

SOAK = os.environ.get("KEV_SOAK") == "1"
SLICE = settings(
    max_examples=500 if SOAK else 25, derandomize=not SOAK, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LIKE_CONTROL = (
    "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "<think>", "</think>", "<unk>", "<repo_name>",
)
ORDINARY = st.lists(
    st.one_of(
        st.text(max_size=6),
        st.sampled_from([
            "the fox", " ", "\n", "\n\n", "\t", "  ", "。", "你好", "社", "😀", "👩\u200d👩\u200d👧", "é", "word.",
            "?!", "<|", "|>", "<0xE7>", "[INST]", "▁", "Ġ", "0", "42", "a\u0301", "\u2028", "\ufffd", "<table>",
            "\n\n\n",
        ]),
    ),
    min_size=1, max_size=8,
).map("".join)
TRICKY = st.lists(st.one_of(ORDINARY, st.sampled_from([*LIKE_CONTROL, "<|im_", "end|>", "<s", ">"])), min_size=1,
                  max_size=6).map("".join)


def is_ordinary(*texts: str) -> bool:
    return not any(mark in "".join(texts) for mark in LIKE_CONTROL)


def template_ids(tokenizer: Any, messages: list[tuple[str, str]]) -> list[int]:
    chat = [{"role": role, "content": content} for role, content in messages]
    ids: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    return ids


def control_ids(tokenizer: Any, ids: Any) -> list[int]:
    """The control tokens among the ids, but for the mark of a model without bytes for what it cannot spell."""
    unknown = {tokenizer.backend_tokenizer.token_to_id("<unk>")}
    controls = {token_id for token_id, token in tokenizer.added_tokens_decoder.items()
                if token.special or "think" in token.content} - unknown
    return [token_id for token_id in ids if token_id in controls]


@SLICE
@given(context=ORDINARY, text=ORDINARY)
def test_ordinary_text_has_the_ids_of_the_template(
    tokenizer: Any, encoder: ChatEncoder, context: str, text: str
) -> None:
    assume(text.strip() and is_ordinary(context, text))
    content = f"{context}\n\n{text}" if context.strip() else text
    prompt = encoder.encode(Question("q", text, context=context))
    assert list(prompt.token_ids) == template_ids(tokenizer, [("user", content)])


@SLICE
@given(texts=st.lists(ORDINARY, min_size=3, max_size=5))
def test_a_chat_passes_as_it_is(
    tokenizer: Any, encoder: ChatEncoder, texts: list[str]
) -> None:
    assume(is_ordinary(*texts) and len(texts) % 2 == 1)
    turns = [(("user", "assistant")[index % 2], text) for index, text in enumerate(texts)]
    messages = tuple(Message(role, text) for role, text in turns)
    assert list(encoder.encode(Question("q", messages=messages)).token_ids) == template_ids(tokenizer, turns)


@SLICE
@given(system=TRICKY, context=TRICKY, text=TRICKY)
def test_text_like_a_control_token_stays_text(
    tokenizer: Any, encoder: ChatEncoder, system: str, context: str, text: str
) -> None:
    assume(all(part.strip() for part in (system, context, text)))
    has_system = tokenizer.chat_template != made.GEMMA
    question = Question("q", text, context=context, system=system if has_system else None)
    plain = Question("q", "word", context="word", system="word" if has_system else None)
    prompt = encoder.encode(question)
    assert control_ids(tokenizer, prompt.token_ids) == control_ids(tokenizer, encoder.encode(plain).token_ids)
    assert [span.name for span in prompt.spans] == (["system"] if has_system else []) + ["context", "question"]
    for span in prompt.spans:
        assert not control_ids(tokenizer, prompt.token_ids[span.start : span.end])


@SLICE
@given(system=TRICKY, context=TRICKY, text=TRICKY)
def test_the_prompt_reads_as_the_template_renders_it(
    embedded_tokenizer: Any, embedded_encoder: ChatEncoder, system: str, context: str, text: str
) -> None:
    assume(all(part.strip() for part in (system, context, text)))
    # The vocabulary of this model lacks a few bytes: it cannot spell some control characters and unused planes.
    assume(all(ord(sign) > 0x1F or sign in "\n\t" for sign in system + context + text))
    assume(all(ord(sign) < 0x40000 for sign in system + context + text))
    chat = [{"role": "system", "content": system}, {"role": "user", "content": f"{context}\n\n{text}"}]
    rendered = embedded_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompt = embedded_encoder.encode(Question("q", text, context=context, system=system))
    assert embedded_tokenizer.decode(prompt.token_ids) == rendered


@SLICE
@given(first=ORDINARY, text=ORDINARY)
def test_a_control_lookalike_leaves_the_other_texts_as_they_are(
    tokenizer: Any, encoder: ChatEncoder, first: str, text: str
) -> None:
    assume(text.strip() and first.strip() and is_ordinary(first, text))
    mark = tokenizer.eos_token

    def first_turn(answer: str) -> tuple[int, ...]:
        messages = (Message("user", first), Message("assistant", answer), Message("user", text))
        prompt = encoder.encode(Question("q", messages=messages))
        return prompt.token_ids[: prompt.spans[0].end]

    if tokenizer.chat_template != made.LLAMA:  # there the first turn and the answer are one stretch of text
        assert first_turn(f"x{mark}") == first_turn("x")


@SLICE
@given(text=TRICKY, own=TRICKY, other=TRICKY)
def test_shared_and_own_tokens_make_the_story(
    tokenizer: Any, encoder: ChatEncoder, text: str, own: str, other: str
) -> None:
    assume(all(part.strip() for part in (text, own, other)))
    shared = SharedContext("s", text)
    head = encoder.encode_shared(shared)
    tail = encoder.encode(Question("q", own, shared="s"), shared)
    assert [span.name for span in head.spans] == ["shared"]
    assert [span.name for span in tail.spans] == ["question"]
    joined = head.token_ids + tail.token_ids
    whole = encoder.encode(Question("q", own, context=text))
    assert control_ids(tokenizer, joined) == control_ids(tokenizer, whole.token_ids)
    if tokenizer.chat_template != made.LLAMA:
        assert tokenizer.decode(joined) == tokenizer.decode(whole.token_ids)


@pytest.mark.parametrize("context", ["It is blue.", "天空是蓝色的。", "word", "a) one\nb) two", "Why?!", "x = {1: 2}"])
@pytest.mark.parametrize("text", ["What is it?", "为什么？", "42?", "(why)", "`code`"])
def test_shared_ids_equal_the_template_where_no_whitespace_is_at_the_border(
    tokenizer: Any, encoder: ChatEncoder, context: str, text: str
) -> None:
    shared = SharedContext("s", context)
    tail = encoder.encode(Question("q", text, shared="s"), shared)
    assert list(encoder.encode_shared(shared).token_ids + tail.token_ids) == \
        template_ids(tokenizer, [("user", f"{context}\n\n{text}")])


def test_the_layout_is_shared_own_question(embedded_tokenizer: Any) -> None:
    encoder = ChatEncoder(embedded_tokenizer)
    shared = SharedContext("s", "SHARED", system="SYSTEM")
    tail = encoder.encode(Question("q", "QUESTION", context="OWN", shared="s"), shared)
    text = embedded_tokenizer.decode(encoder.encode_shared(shared).token_ids + tail.token_ids)
    assert text == ("<|im_start|>system\nSYSTEM<|im_end|>\n<|im_start|>user\nSHARED\n\nOWN\n\nQUESTION<|im_end|>\n"
                    "<|im_start|>assistant\n")


def test_spans_hold_their_text_and_no_more(embedded_tokenizer: Any) -> None:
    question = Question("q", "What is it?", context="The sky is blue.", system="Be brief.")
    prompt = ChatEncoder(embedded_tokenizer).encode(question)
    texts = {span.name: embedded_tokenizer.decode(prompt.token_ids[span.start : span.end]) for span in prompt.spans}
    assert texts == {"system": "Be brief.", "context": "The sky is blue.", "question": "What is it?"}


def test_a_blank_context_is_left_out(embedded_tokenizer: Any) -> None:
    encoder = ChatEncoder(embedded_tokenizer)
    assert encoder.encode(Question("q", "Hi", context=" \n ")) == encoder.encode(Question("q", "Hi"))


def bos_positions(prompt: Prompt, tokenizer: Any) -> list[int]:
    return [at for at, token_id in enumerate(prompt.token_ids) if token_id == tokenizer.bos_token_id]


def test_bos_stands_once_and_at_the_start(made_tokenizers: dict[str, Any]) -> None:
    for tokenizer in (made_tokenizers["llama"], made_tokenizers["gemma"], made.base_model()):
        encoder = ChatEncoder(tokenizer)
        shared = SharedContext("s", f"{tokenizer.bos_token}the fox")
        assert bos_positions(encoder.encode(Question("q", f"{tokenizer.bos_token}what")), tokenizer) == [0]
        assert bos_positions(encoder.encode_shared(shared), tokenizer) == [0]
        assert bos_positions(encoder.encode(Question("q", "what", shared="s"), shared), tokenizer) == []


def test_a_base_model_gets_plain_text_by_the_tokenizers_rule() -> None:
    tokenizer = made.base_model()
    encoder = ChatEncoder(tokenizer)
    prompt = encoder.encode(Question("q", "what is it?", context="the fox."))
    assert list(prompt.token_ids) == tokenizer("the fox.\n\nwhat is it?")["input_ids"]
    assert [(span.name, span.end) for span in prompt.spans][-1] == ("question", len(prompt.token_ids))
    shared = SharedContext("s", "the fox.")
    tail = encoder.encode(Question("q", "what is it?", shared="s"), shared)
    assert encoder.encode_shared(shared).token_ids + tail.token_ids == prompt.token_ids


def test_prompt_token_ids_pass_by_the_template(embedded_tokenizer: Any) -> None:
    encoder = ChatEncoder(embedded_tokenizer, vocab_size=10)
    assert encoder.encode(Question("q", prompt_token_ids=(1, 9, 1))).token_ids == (1, 9, 1)
    with pytest.raises(InvalidField, match=r"prompt_token_ids\[1\] is 10, but the model knows the ids 0 to 9"):
        encoder.encode(Question("q", prompt_token_ids=(1, 10)))


def refused(encoder: ChatEncoder, question: Question) -> InvalidField:
    with pytest.raises(InvalidField) as caught:
        encoder.encode(question)
    assert caught.value.question_id == question.id
    return caught.value


def test_a_system_text_without_a_place_is_refused_by_name(made_tokenizers: dict[str, Any]) -> None:
    question = Question("q", "Hi", system="Be brief.")
    assert refused(ChatEncoder(made_tokenizers["gemma"]), question).field == "system"
    assert refused(ChatEncoder(made.base_model()), question).field == "system"
    forgetful = made.llama_like()
    forgetful.chat_template = made.FORGETFUL
    assert refused(ChatEncoder(forgetful), question).field == "system"
    with pytest.raises(InvalidField, match="no place for it"):
        ChatEncoder(forgetful).encode_shared(SharedContext("s", "text", system="Be brief."))


def test_a_chat_that_the_template_refuses_names_messages(made_tokenizers: dict[str, Any]) -> None:
    twice = Question("q", messages=(Message("user", "Hi"), Message("user", "Hi")))
    error = refused(ChatEncoder(made_tokenizers["llama"]), twice)
    assert error.field == "messages"
    assert "Roles must alternate" in str(error)
    assert refused(ChatEncoder(made.base_model()), twice).field == "messages"


def test_a_text_that_the_template_rewrites(made_tokenizers: dict[str, Any]) -> None:
    tokenizer = made_tokenizers["qwen"]  # it drops what an assistant thought
    encoder = ChatEncoder(tokenizer)
    turns = [("user", "Hi"), ("assistant", "hm </think>the fox"), ("user", "what")]
    question = Question("q", messages=tuple(Message(*turn) for turn in turns))
    assert list(encoder.encode(question).token_ids) == template_ids(tokenizer, turns)
    tricky = replace(question, messages=(*question.messages[:2], Message("user", "<|im_end|>")))
    assert refused(encoder, tricky).field == "messages"


def test_what_cannot_be_shared_is_refused(embedded_tokenizer: Any) -> None:
    encoder = ChatEncoder(embedded_tokenizer)
    with pytest.raises(InvalidField, match="a shared context must hold some text"):
        encoder.encode_shared(SharedContext("s", " \n"))
    assert refused(encoder, Question("q", "Hi", shared="s")).field == "shared"
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + '|' + m['content'] }}{% endfor %}"
    with pytest.raises(InvalidField, match="put it into each question's context"):
        ChatEncoder(tokenizer).encode_shared(SharedContext("s", "text"))


def test_the_unknown_token_typed_out_stays_text(made_tokenizers: dict[str, Any]) -> None:
    for tokenizer in (made_tokenizers["llama"], made_tokenizers["unigram"]):
        prompt = ChatEncoder(tokenizer).encode(Question("q", "the<unk>fox"))
        assert tokenizer.unk_token_id not in prompt.token_ids


def test_the_hidden_unknown_token_of_the_embedded_model_is_no_loophole(embedded_tokenizer: Any) -> None:
    assert embedded_tokenizer.unk_token == "<|endoftext|>"
    prompt = ChatEncoder(embedded_tokenizer).encode(Question("q", "a<|endoftext|>b"))
    assert embedded_tokenizer.unk_token_id not in prompt.token_ids


def test_half_a_surrogate_pair_names_its_field(embedded_tokenizer: Any) -> None:
    assert refused(ChatEncoder(embedded_tokenizer), Question("q", "Hi", context="\ud83d")).field == "context"


def test_a_tokenizer_with_a_limit_of_its_own_does_not_cut(embedded_tokenizer: Any) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=600)
    prompt = ChatEncoder(tokenizer).encode(Question("q", "word " * 50))
    assert 50 < len(prompt.token_ids) < 600


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    class Slow:
        chat_template = None

    with pytest.raises(ModelUnsupported, match="Slow"):
        ChatEncoder(Slow())
