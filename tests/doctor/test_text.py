"""Texts as a batch: what each piece's tokens really are, against the intervals that were recorded."""

import pytest

from kev_engine.doctor.report import diagnose
from kev_engine.doctor.text import describe
from kev_engine.errors import InvalidField
from kev_engine.text.spelling import token_bytes
from tests.text import made

PIECES = ["The cat sat.", "Who reads 中文🙂?"]


def parts(tokenizer, template):
    if template == "chat":
        return [tokenizer.apply_chat_template([{"role": "user", "content": piece}], tokenize=False,
                                              add_generation_prompt=True) for piece in PIECES]
    return [template.replace("{text}", piece) if template else piece for piece in PIECES]


@pytest.mark.parametrize("template", ["", "chat", "<|im_start|>user\n{text}<|im_end|>\n"])
def test_recorded_as_tokenized_is_clean(embedded_tokenizer, template):
    batch = describe(embedded_tokenizer, PIECES, template)
    assert diagnose(batch).findings == ()
    text = b"".join(bytes.fromhex(data) for data in batch["token_bytes"]).decode()
    assert text == "".join(parts(embedded_tokenizer, template))
    assert [batch["input_ids"][start:end] for start, end in batch["segments"]] == [
        embedded_tokenizer.encode(part, add_special_tokens=False) for part in parts(embedded_tokenizer, template)]


def test_a_bos_counted_for_every_piece_shifts_the_intervals():
    """Each piece tokenized alone has a BOS of its own; the joined text has one."""
    batch = describe(made.llama_like(), ["the quick fox.", "what is it?", "Hello world"])
    report = diagnose(batch)
    assert {"BOS_MISSING", "CROSS_SEGMENT_LEAK"} <= set(report.codes)
    assert "C" in {finding.facts.get("name") for finding in report.findings if finding.code == "SPAN_OVERRUN"}
    clean = describe(made.llama_like(), ["the quick fox."])
    assert clean["bos_token_id"] == 1
    assert diagnose(clean).findings == ()


@pytest.mark.parametrize("make", [made.qwen_like, made.llama_like, made.gemma_like])
def test_bytes_of_tokens_are_those_of_the_text(make):
    tokenizer = make()
    text = "Next 你好🙂 fox"
    spelt = b"".join(token_bytes(tokenizer, tokenizer.encode(text, add_special_tokens=False)))
    assert spelt.decode().strip() == text
    assert token_bytes(tokenizer, [10**6]) == [b""]


def test_intervals_beside_the_tokens_leak_and_are_named(embedded_tokenizer):
    right = describe(embedded_tokenizer, PIECES)["segments"]
    shifted = [(right[0][0], right[0][1] - 1), (right[1][0] - 1, right[1][1])]
    report = diagnose(describe(embedded_tokenizer, PIECES, recorded=shifted))
    leak = report.findings[[finding.code for finding in report.findings].index("CROSS_SEGMENT_LEAK")]
    assert leak.variant == "shifted"
    assert leak.facts["borders"] == [right[0][1]]
    assert "CROSS_SEGMENT_LEAK" in report.codes


def test_roles_say_who_wrote_each_token(embedded_tokenizer):
    batch = describe(embedded_tokenizer, ["Hi there"], "<|im_start|>user\n{text}<|im_end|>")
    roles = dict(zip(batch["tokens"], batch["token_roles"], strict=True))
    assert (roles["<|im_start|>"], roles["user"], roles["Hi"], roles["<|im_end|>"]) == (
        "special", "template", "text", "special")


def test_a_token_that_grows_over_a_border_is_found(embedded_tokenizer):
    assert "BOUNDARY_MERGE" in diagnose(describe(embedded_tokenizer, ["The ca", "t sat."])).codes


def test_a_marker_that_this_tokenizer_does_not_know_is_found(embedded_tokenizer):
    report = diagnose(describe(embedded_tokenizer, PIECES, "<|user|>{text}\n"))
    assert "TEMPLATE_TOKENIZER_MISMATCH" in report.codes


@pytest.mark.parametrize(("pieces", "template", "recorded", "field"), [
    ([], "", None, "pieces"), (["a", ""], "", None, "pieces"), (["a"], "no slot", None, "template"),
    (["a"], "{text}{text}", None, "template"), (["a", "b"], "", [(0, 1)], "recorded"),
])
def test_what_cannot_be_used_is_named(embedded_tokenizer, pieces, template, recorded, field):
    with pytest.raises(InvalidField) as caught:
        describe(embedded_tokenizer, pieces, template, recorded)
    assert caught.value.field == field
