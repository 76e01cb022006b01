"""Each family that docs/models.md calls packed, through the whole engine: the answers of `generate`, and isolation."""

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from kev_engine.config import EngineConfig
from kev_engine.models.support import FAMILIES
from kev_engine.runtime.engine import Engine
from tests.models.tiny import NEEDY, PLAIN, tiny_config, tiny_folder
from tests.runtime.test_engine import greedy, questions

TINY = (*PLAIN, *NEEDY)


def test_every_packed_row_of_the_page_has_a_tiny_model():
    types = {tiny_config(family).model_type for family in TINY}
    assert {name for row in FAMILIES if row.why is None for name in row.model_types} == types


@pytest.mark.parametrize("family", TINY)
def test_the_family_answers_like_generate_and_is_isolated(family, tmp_path):
    folder = tiny_folder(tmp_path, family)
    with Engine(EngineConfig(model=str(folder), kv_budget_bytes=1 << 20, token_budget=256), check=True) as engine:
        asked = questions(3, 2)
        answers = engine.ask(asked).answers
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        for question, answer in zip(asked, answers, strict=True):
            assert list(answer.token_ids) == greedy(model, tokenizer, engine, question), question.id
        verdict = engine.audit(asked)
    assert verdict.isolated, verdict.questions
