"""capture, probe and assert_isolated on tiny random models: what leaks is seen, measured and named, the rest is not."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from kev_engine.doctor.capture import capture
from kev_engine.doctor.probe import probe
from kev_engine.doctor.testing import assert_isolated
from kev_engine.errors import KevError
from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import additive, dense

LENGTHS = [5, 3, 5]
LAYOUT = pack(LENGTHS)
SEGMENTS = list(LAYOUT.intervals)
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64}


def tiny(config=LlamaConfig, way: str = "sdpa", dtype=torch.float32, **more):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config(**SIZES, **more), attn_implementation=way, dtype=dtype).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4)
    return model


def row(**more):
    torch.manual_seed(1)
    return {"input_ids": torch.randint(0, 64, (1, sum(LENGTHS))), "use_cache": False} | more


RESTARTED = {"position_ids": torch.tensor(LAYOUT.position_ids)[None]}
ONES = {"attention_mask": torch.ones(1, sum(LENGTHS), dtype=torch.long)}


@pytest.mark.parametrize("config", [LlamaConfig, Qwen2Config])
@pytest.mark.parametrize("way", ["sdpa", "eager"])
def test_restarted_positions_alone_are_isolated(config, way):
    model, batch = tiny(config, way), row(**RESTARTED)
    with torch.no_grad(), capture(model) as seen:
        model(**batch)
    report = seen.diagnose(lengths=LENGTHS)
    assert report.findings == ()
    assert [layer.layer for layer in seen.layers] == [0, 1]
    assert report.will.count == report.should.count == dense(LAYOUT).sum()
    found = probe(model, batch, SEGMENTS)
    assert found.isolated, str(found)
    assert {measure.name for measure in found.measures} == {"perturb", "duplicate", "alone", "gradient"}
    assert_isolated(model, batch, SEGMENTS)


@pytest.mark.parametrize("way", ["sdpa", "eager"])
def test_restarted_positions_beside_a_mask_of_ones_leak(way):
    model, batch = tiny(way=way), row(**RESTARTED, **ONES)
    with torch.no_grad(), capture(model) as seen:
        model(**batch)
    report = seen.diagnose(lengths=LENGTHS)
    leak = next(finding for finding in report.findings if finding.code == "CROSS_SEGMENT_LEAK")
    assert leak.count == 5 * 3 + 8 * 5
    with pytest.raises(AssertionError, match="CROSS_SEGMENT_LEAK") as caught:
        assert_isolated(model, batch, SEGMENTS)
    # Every measurement sees it by itself.
    for name in ("perturb", "duplicate", "alone", "gradient"):
        assert f"{name}: segment" in str(caught.value)


def test_running_positions_alone_leak():
    model, batch = tiny(), row()
    with torch.no_grad(), capture(model) as seen:
        model(**batch)
    assert "CROSS_SEGMENT_LEAK" in seen.diagnose(lengths=LENGTHS).codes
    assert not probe(model, batch, SEGMENTS).isolated


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_leaking_cell_is_no_noise_and_noise_is_no_leak(dtype):
    model = tiny(dtype=dtype)
    allowed = torch.tensor(dense(LAYOUT))
    clean = row(**RESTARTED, attention_mask=additive(allowed, dtype)[None, None])
    assert probe(model, clean, SEGMENTS).isolated
    allowed[9, 2] = True
    leaky = row(**RESTARTED, attention_mask=additive(allowed, dtype)[None, None])
    found = probe(model, leaky, SEGMENTS)
    assert {(measure.reader, measure.read) for measure in found.leaks if measure.name == "perturb"} == {(2, 0)}
    with torch.no_grad(), capture(model) as seen:
        model(**leaky)
    (finding,) = seen.diagnose(lengths=LENGTHS).findings
    assert (finding.code, finding.count, finding.indexes) == ("CROSS_SEGMENT_LEAK", 1, (9,))


def test_a_boolean_mask_under_eager_attention_is_added():
    """The measured behaviour behind MASK_VALUES_AS_BIAS for booleans."""
    model = tiny(way="eager")
    batch = row(**RESTARTED, attention_mask=torch.tensor(dense(LAYOUT))[None, None])
    with torch.no_grad(), capture(model) as seen:
        model(**batch)
    assert "MASK_VALUES_AS_BIAS" in seen.diagnose(lengths=LENGTHS).codes
    assert not probe(model, batch, SEGMENTS).isolated


def test_a_shared_prefix_may_be_read_by_its_branches():
    layout = pack([4, 3, 3], [None, 0, 0])
    torch.manual_seed(2)
    batch = {"input_ids": torch.randint(0, 64, (1, 10)), "use_cache": False,
             "position_ids": torch.tensor(layout.position_ids)[None],
             "attention_mask": additive(torch.tensor(dense(layout)), torch.float32)[None, None]}
    model = tiny()
    assert_isolated(model, batch, layout.intervals, layout.parents)
    with pytest.raises(AssertionError):
        assert_isolated(model, batch, layout.intervals)


def test_windows_are_seen_as_the_layer_got_them():
    model = tiny(MistralConfig, sliding_window=3)
    with torch.no_grad(), capture(model) as seen:
        model(**row(**RESTARTED))
    assert seen.diagnose(lengths=LENGTHS).findings == ()
    assert {layer.window for layer in seen.layers} == {3}
    assert seen.diagnose(lengths=LENGTHS).will.count == dense(LAYOUT, 3).sum()


def test_capture_leaves_nothing_behind():
    from transformers.modeling_utils import AttentionInterface

    before = AttentionInterface.get_interface
    model, other = tiny(), tiny()
    with torch.no_grad(), capture(model) as seen:
        other(**row())
    with pytest.raises(ValueError, match="input_ids"), capture(model):
        model()
    assert AttentionInterface.get_interface is before
    assert not model._forward_pre_hooks
    assert seen.layers == []
    with pytest.raises(KevError, match="must run inside the block"):
        seen.diagnose(lengths=LENGTHS)


def test_a_row_that_does_not_fit_is_refused():
    model = tiny()
    with pytest.raises(KevError, match="one packed row"):
        probe(model, {"input_ids": torch.zeros(2, 3, dtype=torch.long)}, [(0, 3)])
    with pytest.raises(KevError, match=r"segments\[1\]"):
        probe(model, row(), [(0, 5), (5, 99)])
