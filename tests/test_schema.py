"""Questions as JSON: written and read again they are the same, and what is at its default is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kev_engine import Message, Question, SamplingParams
from kev_engine.schema import DEFAULT_ORDER

text = st.text(min_size=1, max_size=8).filter(str.strip)
sampling = st.builds(
    SamplingParams, temperature=st.none() | st.floats(0, 100), top_k=st.integers(0, 99),
    top_p=st.floats(0, 1, exclude_min=True), min_p=st.floats(0, 1, exclude_max=True),
    repetition_penalty=st.floats(0.01, 100), seed=st.none() | st.integers(0, 2**63 - 1),
    order=st.permutations(DEFAULT_ORDER).map(tuple),
)
rest = {
    "sampling": sampling, "adapter": st.none() | text, "max_new_tokens": st.integers(1, 9999),
    "stop": st.lists(text, max_size=2).map(tuple), "ignore_eos": st.booleans(), "n": st.integers(1, 9),
    "draft": st.integers(0, 64), "regex": st.none() | text,
}
questions = (
    st.builds(Question, id=text, question=text, context=st.text(max_size=8), system=st.none() | text, **rest)
    | st.builds(Question, id=text, question=text, shared=text, **rest)
    | st.builds(Question, id=text, messages=st.lists(st.builds(Message, text, text), min_size=1, max_size=3).map(tuple))
    | st.builds(Question, id=text, prompt_token_ids=st.lists(st.integers(0, 99), min_size=1, max_size=5).map(tuple))
    | st.builds(Question, id=text, question=text, choices=st.lists(text, min_size=1, max_size=3).map(tuple))
    | st.builds(Question, id=text, question=text, json_schema=st.just({"type": "object"}))
)


@given(questions)
def test_a_question_written_as_json_is_read_as_the_same(question):
    assert Question.from_json(question.to_json()) == question


def test_defaults_are_left_out():
    assert Question("A", "Who?").to_json() == {"id": "A", "question": "Who?"}
