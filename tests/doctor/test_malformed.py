"""Whatever is handed over: a report, or a KevError with one sentence. Never another exception, never a traceback."""

import copy
import json
import math
import os
import random
import resource
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from kev_engine.doctor.__main__ import as_lines
from kev_engine.doctor.report import diagnose
from kev_engine.errors import KevError

CASES = [json.loads(path.read_text(encoding="utf-8"))["batch"]
         for path in sorted((Path(__file__).parent / "cases").glob("*.json"))]
COUNT = 100_000 if os.environ.get("KEV_SOAK") == "1" else 2000
ODD = [None, True, False, 0, -1, 1, 2, 3, 7, 10**30, -(10**30), 2**31, 2**62, 0.5, 1e300, math.nan, math.inf, -math.inf,
       "", "x", "-inf", "nan", "12", [], [[]], [[[]]], [0], [1, 2], [[1], [1, 2]], [None], ["a"], {}, {"a": 1},
       {"ones": [2, 2]}, {"tril": 3, "flip": [[0, 2]]}, {"block_causal": [1, 2], "as": "additive", "sentinel": -5},
       {"ones": [10**9, 10**9]}, {"file": "nowhere.npy"}, {"tril": 10**12}, [[[[[1]]]]], b"x", object, {1: 2},
       np.zeros((2, 3)), np.array([1, 2, 3]), np.array(["a"]), np.zeros((0, 2)), np.float32(1.5), [1, "a", None]]
EXTRA = ["lengths", "segments", "parents", "pad_segments", "total", "input_ids", "attention_mask", "position_ids",
         "cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "q_len", "kv_len", "past_length", "labels", "spans", "paths",
         "adapter", "head_map", "forbid", "read_index", "decode_positions", "mask_planes", "consumer", "sliding_window",
         "layer_types", "token_bytes", "num_heads", "num_kv_heads", "pad_token_id", "unknown", "labels_shifted",
         "position_start", "bos_token_id", "want_causal", "is_causal", "mask_dtype", "max_seqlen", "special_ids"]


@pytest.fixture(autouse=True)
def _two_gigabytes():
    """What a number asks for beyond that is a MemoryError here, and not the end of the machine."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (2 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def mutate(random_: random.Random, value: object, depth: int = 0) -> object:
    """The value with one place in it changed for something odd."""
    if isinstance(value, dict) and value and random_.random() < 0.85:
        key = random_.choice(list(value))
        value[key] = mutate(random_, value[key], depth + 1)
        return value
    if isinstance(value, list) and value and random_.random() < 0.7:
        place = random_.randrange(len(value))
        kind = random_.random()
        if kind < 0.2:
            del value[place]
        elif kind < 0.4:
            value.insert(place, copy.deepcopy(value[place]))
        else:
            value[place] = mutate(random_, value[place], depth + 1)
        return value
    if isinstance(value, int) and random_.random() < 0.5:
        return value + random_.choice([-1, 1, -5, 5])
    return copy.deepcopy(random_.choice(ODD))


def examples(count: int):
    random_ = random.Random(20)
    for _ in range(count):
        batch = copy.deepcopy(random_.choice(CASES))
        if random_.random() < 0.4:
            other = random_.choice(CASES)
            for key in random_.sample(list(other), min(len(other), 3)):
                batch[key] = copy.deepcopy(other[key])
        for _ in range(random_.choice([1, 1, 2, 3])):
            if random_.random() < 0.25:
                batch[random_.choice(EXTRA)] = copy.deepcopy(random_.choice(ODD))
            else:
                mutate(random_, batch)
        yield batch


def test_mutated_cases_give_a_report_or_a_sentence():
    refused = 0
    for batch in examples(COUNT):
        try:
            report = diagnose(batch)
            json.dumps(report.as_json(), allow_nan=False)
            assert as_lines(report, "batch")
        except KevError as trouble:
            refused += 1
            sentence = str(trouble)
            assert sentence.endswith("."), sentence
            assert len(sentence) < 600, sentence
        except Exception as trouble:
            raise AssertionError(f"{type(trouble).__name__}: {trouble} for {batch!r}") from trouble
    assert 0.2 < refused / COUNT < 0.95, "the mutations are too tame or too wild to prove anything"


@pytest.mark.parametrize("huge", [2**31, 2**62, -(2**62)])
def test_a_huge_number_in_the_place_of_any_other(huge):
    """Sizes, counts, ids and indexes alike: nothing is built as large as a number says."""
    for batch in CASES:
        for holder, key in [(None, key) for key in batch] + [("adapter", key) for key in batch.get("adapter", {})]:
            value = (batch if holder is None else batch[holder])[key]
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            changed = copy.deepcopy(batch)
            (changed if holder is None else changed[holder])[key] = huge
            with suppress(KevError):
                json.dumps(diagnose(changed).as_json(), allow_nan=False)


@pytest.mark.parametrize("batch", [None, [], 3, "x", {"": 1}, {3: 4}])
def test_descriptions_that_are_none(batch):
    with pytest.raises(KevError):
        diagnose(batch)


def test_null_counts_as_not_given():
    assert diagnose({"lengths": None, "segments": None, "attention_mask": None}).verdict == "ok"


@pytest.mark.parametrize(("batch", "key"), [
    ({"lengths": [1, -2]}, "lengths[1]"), ({"lengths": [True]}, "lengths[0]"), ({"segments": [[3, 1]]}, "segments[0]"),
    ({"segments": [[0, 3], [2, 5]]}, "segments[1]"), ({"lengths": [2], "parents": [0]}, "parents[0]"),
    ({"consumer": "cuda"}, "consumer"), ({"position_ids": [[0], [0, 1]]}, "position_ids[1]"),
    ({"mask_dtype": "floaty"}, "mask_dtype"), ({"adapter": {"rank": 3}}, "adapter.rank"),
    ({"attention_mask": [["no"]]}, "attention_mask[0][0]"), ({"cu_seqlens": [0]}, "cu_seqlens"),
    ({"attention_mask": {"tril": 3, "flip": [[1, 3]]}}, "attention_mask.flip[0]"),
    ({"cu_seqlens_q": [0, 1]}, "cu_seqlens_k"), ({"spans": {"a": [1]}}, "spans.a"), ({"input_ids": []}, "input_ids"),
    ({"token_bytes": ["zz"]}, "token_bytes[0]"), ({"kv_len": 3}, "q_len"), ({"pad_segments": [4]}, "pad_segments"),
])
def test_the_key_at_fault_is_named(batch, key):
    with pytest.raises(KevError) as caught:
        diagnose(batch)
    assert getattr(caught.value, "field", "") == key


def test_a_misspelt_key_is_recognised():
    with pytest.raises(KevError, match="did you mean 'position_ids'"):
        diagnose({"positions_ids": [0, 1]})
