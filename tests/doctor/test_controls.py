"""Right inputs of every kind beyond the cases: whatever way a batch is described, nothing above a note is reported."""

import numpy as np
import pytest

from kev_engine.doctor.report import diagnose
from kev_engine.isolation.layout import pack
from kev_engine.isolation.mask import dense

LENGTHS = [5, 3, 4]
RESTARTED = pack(LENGTHS).position_ids.tolist()
BLOCKS = {"block_causal": LENGTHS}
LEAST = float(np.finfo(np.float32).min)
GPU = {"dtype": "bfloat16", "device": "cuda"}
VARLEN = GPU | {"consumer": "flash_varlen", "cu_dtype": "int32"}
LEFT = [[0, 0, 5, 6, 7]]


PACKED_ROWS = {"input_ids": [[5] * 6, [6] * 6], "position_ids": [[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3]],
               "consumer": "hf"}


def added(cells) -> list:
    return np.where(np.asarray(cells, dtype=bool), 0.0, LEAST)[None, None].tolist()


def behind_pads(pads: int, size: int) -> np.ndarray:
    cells = np.tril(np.ones((size, size), dtype=bool))
    cells[:, :pads] = False
    return cells


def near(size: int, window: int) -> list:
    place = np.arange(size)
    return (np.abs(place[:, None] - place[None]) < window).tolist()


CONTROLS = {
    "block mask, heads written out": {
        "lengths": LENGTHS, "attention_mask": BLOCKS | {"repeat": [1, 4]}, "num_heads": 4, "mask_dtype": "bool",
        "consumer": "sdpa"},
    "block mask for mha": {
        "lengths": LENGTHS, "attention_mask": BLOCKS | {"as": "block"}, "mask_dtype": "bool", "consumer": "mha"},
    "block mask for flex": {
        "lengths": LENGTHS, "position_ids": RESTARTED, "attention_mask": BLOCKS, "mask_dtype": "bool",
        "consumer": "flex"},
    "boolean block mask for a transformers forward with sdpa": {
        "lengths": LENGTHS, "position_ids": [RESTARTED], "attention_mask": BLOCKS | {"repeat": [1, 1]},
        "mask_dtype": "bool", "dtype": "bfloat16", "consumer": "hf", "attn_implementation": "sdpa"},
    "−inf": {
        "lengths": LENGTHS, "attention_mask": BLOCKS | {"as": "additive", "sentinel": "-inf"}, "mask_dtype": "float32",
        "dtype": "float32", "consumer": "eager"},
    "planes of −inf": {
        "lengths": [2, 1], "pad_segments": [1], "mask_dtype": "float32", "consumer": "eager",
        "mask_planes": [{"tril": 3, "as": "additive", "sentinel": "-inf"}, [0, 0, "-inf"]]},
    "a distance bias beside the least finite number": {
        "attention_mask": [[0, LEAST, LEAST], [-0.5, 0, LEAST], [-1.0, -0.5, 0]], "mask_dtype": "float32",
        "dtype": "float32", "consumer": "sdpa"},
    "a learned bias": {
        "attention_mask": [[[[1.5, LEAST, LEAST], [0.3, 1.2, LEAST], [0.1, -0.2, 1.0]]]], "mask_dtype": "float32",
        "consumer": "eager"},
    "left padding known by its ids, cells hidden": {
        "input_ids": LEFT, "pad_token_id": 0, "padding_side": "left", "attention_mask": added(behind_pads(2, 5)),
        "mask_dtype": "float32", "dtype": "float32", "consumer": "hf", "attn_implementation": "eager",
        "position_ids": [[0, 0, 0, 1, 2]]},
    "left padding and a window": {
        "input_ids": LEFT, "pad_token_id": 0, "padding_side": "left", "sliding_window": 2, "mask_dtype": "bool",
        "attention_mask": (behind_pads(2, 5) & np.triu(np.ones((5, 5), dtype=bool), -1))[None, None].tolist(),
        "consumer": "sdpa"},
    "left padding under flash attention": {
        "input_ids": LEFT, "attention_mask": [[0, 0, 1, 1, 1]], "position_ids": [[0, 0, 0, 1, 2]], "pad_token_id": 0,
        "padding_side": "left", "task": "generate", "read_index": -1, "consumer": "hf",
        "attn_implementation": "flash_attention_2", **GPU},
    "encoder, one row of padding": {
        "input_ids": [[5, 6, 7, 0]], "pad_token_id": 0, "padding_side": "right", "want_causal": False,
        "attention_mask": [[[[0, 0, 0, LEAST]]]], "mask_dtype": "float32", "dtype": "float32", "consumer": "sdpa"},
    "encoder with a window on both sides": {
        "total": 6, "want_causal": False, "sliding_window": 2, "attention_mask": near(6, 2), "mask_dtype": "bool",
        "consumer": "sdpa"},
    "encoder through a varlen kernel, flag not told": {
        "lengths": LENGTHS, "cu_seqlens": [0, 5, 8, 12], "want_causal": False, **VARLEN},
    "cross attention through a varlen kernel": {
        "cu_seqlens_q": [0, 2, 4], "cu_seqlens_k": [0, 5, 9], "want_causal": False, "is_causal": False, **VARLEN},
    "decode of two sequences": {
        "cu_seqlens_q": [0, 1, 2], "cu_seqlens_k": [0, 6, 11], "is_causal": True, "max_seqlen": 11, **VARLEN},
    "decode step, cells": {
        "q_len": 1, "kv_len": 6, "past_length": 5, "attention_mask": {"ones": [1, 1, 1, 6]}, "mask_dtype": "bool",
        "consumer": "hf", "position_ids": [[5]]},
    "decode step behind left padding": {
        "q_len": 1, "kv_len": 6, "past_length": 5, "attention_mask": [[0, 0, 1, 1, 1, 1]], "consumer": "hf",
        "position_ids": [[3]]},
    "decode step behind left padding, two rows": {
        "input_ids": [[8], [9]], "past_length": 5, "attention_mask": [[0, 0, 1, 1, 1, 1], [1] * 6],
        "position_ids": [[3], [5]], "padding_side": "left", "consumer": "hf"},
    "chunk behind a cache, added": {
        "q_len": 2, "kv_len": 6, "past_length": 4, "attention_mask": [[[[0, 0, 0, 0, 0, LEAST], [0] * 6]]],
        "mask_dtype": "float32", "dtype": "float32", "consumer": "hf", "position_ids": [[4, 5]]},
    "one query without a causal flag": {
        "q_len": 1, "kv_len": 8, "past_length": 7, "is_causal": False, "consumer": "sdpa"},
    "segments in any order": {
        "segments": [[3, 5], [0, 3]], "position_ids": [0, 1, 2, 0, 1], "attention_mask": {"block_causal": [3, 2]},
        "mask_dtype": "bool", "consumer": "sdpa"},
    "tokens between segments": {
        "segments": [[0, 3], [4, 6]], "attention_mask": {"block_causal": [3, 1, 2]}, "mask_dtype": "bool",
        "consumer": "sdpa", "position_ids": [0, 1, 2, 0, 0, 1]},
    "segment numbers that padding ends": {
        "attention_mask": [[1, 1, 2, 2, 0]], "position_ids": [[0, 1, 0, 1, 0]], "mask_meaning": "segment_ids",
        "consumer": "flex"},
    "packed labels, shifted": {
        "lengths": [3, 2], "input_ids": [1, 12, 13, 1, 22], "labels": [12, 13, -100, 22, -100], "labels_shifted": True,
        "bos_token_id": 1, "position_ids": [0, 1, 2, 0, 1], "consumer": "hf", "task": "train"},
    "a keep mask in floats": {
        "input_ids": [[1, 2, 3]], "attention_mask": [[1.0, 1.0, 1.0]], "mask_dtype": "float32", "dtype": "bfloat16",
        "consumer": "hf"},
    "one line of positions for two rows": {
        "input_ids": [[1, 2, 3], [4, 5, 6]], "position_ids": [[0, 1, 2]], "consumer": "hf"},
    "one decode position a row": {
        "attention_mask": [[0, 0, 1, 1, 1], [1] * 5], "decode_positions": [3, 5], "padding_side": "left",
        "task": "generate", "consumer": "hf"},
    "positions of a picture": {
        "input_ids": [[1, 2, 3, 4, 5, 6]],
        "position_ids": [[[0, 1, 1, 1, 1, 3]], [[0, 1, 1, 2, 2, 3]], [[0, 1, 2, 1, 2, 3]]]},
    "restarted positions alone": {"position_ids": RESTARTED},
    "boundaries handed on by a transformers forward under flash attention": {
        "lengths": [3, 3], "cu_seqlens": [0, 3, 6], "max_seqlen": 3, "position_ids": list(range(6)),
        "position_kind": "rope", "consumer": "hf", "attn_implementation": "flash_attention_2", **GPU},
    "the same beside a mask of ones": {
        "lengths": [3, 3], "cu_seqlens": [0, 3, 6], "attention_mask": [[1] * 6], "position_ids": [0, 1, 2, 0, 1, 2],
        "consumer": "hf", "attn_implementation": "flash_attention_2", **GPU},
    "two rows, each packed by its positions": PACKED_ROWS,
    "the same under flash attention beside ones": PACKED_ROWS | {
        "attention_mask": [[1] * 6] * 2, "attn_implementation": "flash_attention_2", **GPU},
    "two rows, each with blocks of its own": {
        "attention_mask": [[[[1, 0, 0], [0, 1, 0], [0, 1, 1]]], [[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]],
        "mask_dtype": "bool", "consumer": "sdpa"},
    "blocks written out for each head, nobody said the segments": {
        "attention_mask": np.broadcast_to(dense(pack([2, 2])), (1, 4, 4, 4)).tolist(), "mask_dtype": "bool",
        "consumer": "sdpa"},
    "two rows without their padding through a varlen kernel": {
        "input_ids": [[1, 2, 3, 0], [5, 6, 7, 8]], "attention_mask": [[1, 1, 1, 0], [1] * 4], "cu_seqlens": [0, 3, 7],
        "max_seqlen": 4, "pad_token_id": 0, "padding_side": "right", **VARLEN},
    "two rows end to end through a varlen kernel": {
        "input_ids": [[1, 2, 3, 4], [5, 6, 7, 8]], "cu_seqlens": [0, 4, 8], **VARLEN},
    "cells that hide the padding of a cache": {
        "input_ids": [[5], [6]], "q_len": 1, "kv_len": 4, "past_length": 3, "position_ids": [[2], [3]],
        "attention_mask": [[[[LEAST, 0, 0, 0]]], [[[0, 0, 0, 0]]]], "mask_dtype": "float32", "dtype": "float32",
        "consumer": "hf"},
    "zero positions of padding that cells hide": {
        "input_ids": [[5, 6, 0, 0, 0]], "pad_token_id": 0, "padding_side": "right", "consumer": "sdpa",
        "position_ids": [[0, 1, 0, 0, 0]], "mask_dtype": "bool",
        "attention_mask": [[(np.tril(np.ones((5, 5))) * [1, 1, 0, 0, 0]).tolist()]]},
    "a tree of contexts, added": {
        "segments": [[0, 2], [2, 4], [4, 6]], "parents": [None, 0, 0], "position_ids": [0, 1, 2, 3, 2, 3],
        "attention_mask": added(dense(pack([2, 2, 2], [None, 0, 0]))), "mask_dtype": "float32", "dtype": "float32",
        "consumer": "eager"},
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_right_batch_is_clean(name):
    report = diagnose(CONTROLS[name])
    assert [finding for finding in report.findings if finding.level != "note"] == []


FAULTS = {
    "left padding read through a triangle": (
        {"input_ids": LEFT, "pad_token_id": 0, "padding_side": "left", "attention_mask": {"tril": 5, "repeat": [1, 1]},
         "mask_dtype": "bool", "consumer": "hf"}, {"PAD_MASK_MISSING"}),
    "numbers against cu_seqlens": (
        {"cu_seqlens": [0, 4], "attention_mask": [[1, 1, 2, 2]], **VARLEN}, {"BOUNDARY_CONFLICT", "SEGMENT_ID_MASK"}),
    "positions against a mask of blocks": (
        {"attention_mask": {"block_causal": [6, 2, 4]}, "mask_dtype": "bool", "position_ids": RESTARTED,
         "consumer": "sdpa"}, {"BOUNDARY_CONFLICT", "CROSS_SEGMENT_LEAK", "HIDDEN_KEYS"}),
    "a keep mask too short for the cache": (
        {"q_len": 1, "kv_len": 6, "past_length": 5, "attention_mask": [[1]], "consumer": "hf"}, {"MASK_SHAPE"}),
    "one line of decode positions for rows of different length": (
        {"attention_mask": [[0, 0, 1, 1, 1], [1] * 5], "decode_positions": [5, 6, 7], "padding_side": "left",
         "task": "generate", "consumer": "hf"}, {"POS_SHARED_ACROSS_ROWS"}),
    "packed rows beside ones": (
        PACKED_ROWS | {"attention_mask": [[1] * 6] * 2}, {"BOUNDARY_CONFLICT", "CROSS_SEGMENT_LEAK"}),
    "one head of a module's mask leaks": (
        {"lengths": [1, 1], "attention_mask": [[[0, 1], [1, 0]], [[0, 1], [0, 0]]], "mask_dtype": "bool",
         "num_heads": 2, "consumer": "mha"}, {"CROSS_SEGMENT_LEAK"}),
    "cells in two axes for a transformers forward": (
        {"lengths": [2, 2], "attention_mask": {"block_causal": [2, 2]}, "mask_dtype": "bool", "consumer": "hf"},
        {"MASK_SHAPE"}),
    "rows of a padding mask taken for queries": (
        {"input_ids": [[1, 2, 3], [5, 6, 0]], "attention_mask": [[1, 1, 1], [1, 1, 0]], "mask_dtype": "bool",
         "consumer": "sdpa"}, {"MASK_SHAPE"}),
    "whole numbers added by eager attention": (
        {"lengths": [2, 2], "attention_mask": BLOCKS | {"block_causal": [2, 2], "repeat": [1, 1]}, "consumer": "hf",
         "mask_dtype": "int64", "attn_implementation": "eager"},
        {"MASK_VALUES_AS_BIAS", "CROSS_SEGMENT_LEAK", "LEAK_FUTURE"}),
    "a transformers forward told not to be causal": (
        {"lengths": [4], "is_causal": False, "consumer": "hf"}, {"LEAK_FUTURE", "CAUSAL_MISSING"}),
    "grouped heads for flex": (
        {"num_heads": 8, "num_kv_heads": 2, "consumer": "flex", "enable_gqa": False}, {"GQA_SHAPE"}),
    "labels of two rows rolled round": (
        {"input_ids": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": [[2, 3, 4, 1], [6, 7, 8, 5]], "labels_shifted": True},
        {"LABEL_CROSSES_BOUNDARY"}),
    "a segment of padding kept, and nothing else": (
        {"lengths": [3, 2], "pad_segments": [1], "attention_mask": [[0, 0, 0, 1, 1]], "consumer": "hf"},
        {"MASK_INVERTED"}),
    "a causal flag in cross attention": (
        {"q_len": 3, "kv_len": 5, "want_causal": False, "is_causal": True, "consumer": "sdpa"},
        {"CAUSAL_UNWANTED", "HIDDEN_KEYS"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_oracle_cannot_compute(name):
    batch, codes = FAULTS[name]
    assert {finding.code for finding in diagnose(batch).findings if finding.level != "note"} == codes
