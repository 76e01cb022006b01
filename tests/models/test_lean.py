"""transformers imported for one machine and no compiler: models run, and who asks for the compiler later gets it."""

import subprocess
import sys

import pytest
import torch

from kev_engine.models.lean import COMPILER, MARKS, _Marks

PROGRAM = """
import inspect, sys
from kev_engine.models.lean import import_transformers
usual = inspect.getframeinfo
import_transformers()
import torch
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
logits = LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes))(torch.tensor([[1, 2]])).logits
assert logits.shape == (1, 2, 8)
assert "torch._dynamo" not in sys.modules and "torch.distributed.tensor" not in sys.modules
assert torch.distributed.is_available() is (sys.platform == "linux")
assert inspect.getframeinfo is usual
assert torch._dynamo.explain and torch._dynamo is sys.modules["torch._dynamo"]
"""


def test_models_run_without_the_compiler_and_the_compiler_can_still_be_used():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(MARKS))
def test_a_mark_leaves_the_function_as_it_is(name):
    def function() -> None: ...

    mark = getattr(_Marks(COMPILER), name)
    assert mark(function) is function
    assert mark(recursive=False)(function) is function


def test_anything_but_a_mark_is_the_compilers_own():
    assert _Marks(COMPILER).explain is torch._dynamo.explain
    with pytest.raises(AttributeError):
        _Marks(COMPILER).nothing  # noqa: B018
