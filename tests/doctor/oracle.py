# Compact on purpose: it reads like the format it checks.
# ruff: noqa: E501, SIM905, B905, RUF007, RUF021, RUF005, E731, SIM114
"""An oracle for the doctor's cases. It shares no code with the engine.

It rebuilds, from `batch` alone, which (query, key) cells should be allowed and which ones the consumer will allow,
recomputes the numbers that the cases claim, and compares a report with what a case expects.
"""

import math
import re

import numpy as np

RANK = {"ok": 0, "note": 1, "warning": 2, "error": 3}

BATCH_KEYS = set("""
lengths segments parents pad_segments forbid want_causal total input_ids tokens token_bytes special_tokens_mask attention_mask
mask_planes mask_meaning mask_dtype dtype device bias_width position_ids past_length position_kind position_start decode_positions
cu_seqlens cu_seqlens_q cu_seqlens_k cu_dtype max_seqlen q_len kv_len is_causal consumer attn_implementation library
sliding_window num_heads num_kv_heads head_map enable_gqa layer_types padding_side pad_token_id eos_token_id bos_token_id task
read_index labels labels_shifted spans paths special_ids template_markers text_starts_with_bos add_special_tokens adapter
""".split())
ADAPTER_KEYS = set("token_names r lora_alpha use_rslora given_scaling weight matched_modules b_is_zero names loaded rows num_beams".split())
FINDING_KEYS = {"code", "level", "count", "indexes", "pairs", "expected", "found"}
SHORTHANDS = {"file", "ones", "zeros", "tril", "block_causal", "as", "sentinel", "repeat"}
CHOICES = {
    "mask_meaning": {"keep", "block", "additive", "segment_ids"}, "position_kind": {"rope", "absolute"},
    "consumer": {"hf", "sdpa", "mha", "eager", "flash_varlen", "flex"}, "padding_side": {"left", "right"},
    "attn_implementation": {"sdpa", "eager", "flash_attention_2", "flex_attention"}, "task": {"generate", "train", "score"},
}

CODES = {code: {"error"} for code in """
CROSS_SEGMENT_LEAK LEAK_FUTURE HIDDEN_KEYS ROW_EMPTY FORBIDDEN_CELL MASK_INVERTED MASK_VALUES_AS_BIAS MASK_DTYPE MASK_SHAPE
MASK_NAN MASK_OVERFLOW MASK_SENTINEL_UNREPRESENTABLE MASK_TOO_LARGE SIZE_OVERFLOW CAUSAL_MISSING CAUSAL_UNWANTED CAUSAL_AND_MASK
ALIGN_TOP_LEFT BOUNDARY_CONFLICT BACKEND_IGNORES_MASK BACKEND_NO_ARBITRARY_MASK BACKEND_DTYPE POS_NOT_RESET POS_START POS_FROZEN
POS_COUNTS_PADS POS_SHARED_ACROSS_ROWS POS_LENGTH POS_RANK LENGTH_MISMATCH CU_NO_LEADING_ZERO CU_NEGATIVE CU_ZERO_LENGTH CU_DTYPE
CU_QK_MISMATCH CU_MAX_SEQLEN PAD_SIDE PAD_IS_EOS PAD_MASK_MISSING READ_INDEX LAST_TOKEN BOS_DOUBLE BOS_MISSING BOS_MID
PATHS_DISAGREE TEMPLATE_TOKENIZER_MISMATCH SPECIAL_SPLIT BOUNDARY_MERGE SPAN_OFF_BY_ONE SPAN_OVERRUN SPAN_UNKNOWN
LABEL_CROSSES_BOUNDARY WINDOW_IGNORED WINDOW_OFF_BY_ONE GQA_SHAPE GQA_ORDER NOT_PACKABLE ADAPTER_SCALE ADAPTER_ALPHA_MISSING
ADAPTER_NOTHING_MATCHED ADAPTER_UNKNOWN ADAPTER_COUNT ADAPTER_MISROUTED
""".split()}
CODES |= {code: {"warning"} for code in "MASK_SENTINEL_WEAK SEGMENT_ID_MASK PSEUDO_SEGMENTS SPLIT_CHARACTER ADAPTER_NO_EFFECT".split()}
CODES |= {"OK_CONTINUATION": {"note"}, "POS_LEFT_PAD": {"note", "error"}, "CU_END": {"error", "warning"}}
CODES["ROW_EMPTY"] = CODES["POS_NOT_RESET"] = {"error", "note"}

BF16_MAX = 3.3895313892515355e38
LARGEST = {"float16": 65504.0, "bfloat16": BF16_MAX, "float32": float(np.finfo(np.float32).max)}
LIMIT = 2**31 - 1


# ---------------------------------------------------------------- reading a batch

def shape_of(mask):
    if isinstance(mask, dict):
        if "ones" in mask or "zeros" in mask:
            base = list(mask.get("ones", mask.get("zeros")))
        else:
            n = mask["tril"] if "tril" in mask else sum(mask["block_causal"])
            base = [n, n]
        return list(mask.get("repeat", [])) + base
    shape = []
    while isinstance(mask, list):
        shape.append(len(mask))
        mask = mask[0] if mask else None
    return shape


def values_of(mask):
    """A mask as a float array; None when it is too large to build here."""
    if isinstance(mask, list):
        return np.array(mask, dtype=object).astype(str).astype(float) if has_text(mask) else np.array(mask, dtype=float)
    shape = shape_of(mask)
    if math.prod(shape) > 10**7:
        return None
    if "ones" in mask or "zeros" in mask:
        return np.full(shape, 1.0 if "ones" in mask else 0.0)
    lengths = [mask["tril"]] if "tril" in mask else mask["block_causal"]
    number = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(number))
    keep = (number[:, None] == number[None]) & (place[None] <= place[:, None])
    way = mask.get("as", "keep")
    plain = {"keep": keep, "float01": keep, "block": ~keep}.get(way)
    if plain is None:
        plain = np.where(keep, 0.0, mask["sentinel"])
    return np.broadcast_to(plain.astype(float), shape)


def has_text(value):
    return any(map(has_text, value)) if isinstance(value, list) else isinstance(value, str)


def rows_of(value):
    """[T] or [B][T] -> [B][T]."""
    return value if isinstance(value[0], list) else [value]


class Row:
    """The intended layout of one packed row."""

    def __init__(self, batch):
        self.batch = batch
        if "segments" in batch:
            self.spans = [tuple(span) for span in batch["segments"]]
        else:
            ends = np.cumsum([0] + batch["lengths"]).tolist() if "lengths" in batch else []
            self.spans = list(zip(ends, ends[1:]))
        self.given = bool(self.spans)
        self.total = self.find_total()
        if not self.spans and self.total:
            self.spans = [(0, self.total)]
        self.parents = batch.get("parents") or [None] * len(self.spans)
        self.pads = set(batch.get("pad_segments", []))
        self.start = batch.get("position_start", 0)

    def find_total(self):
        if "total" in self.batch:
            return self.batch["total"]
        for key in ("input_ids", "labels", "position_ids", "token_bytes"):
            if key in self.batch:
                shape = shape_of(self.batch[key])
                return shape[-1]
        if self.spans:
            return max(end for _, end in self.spans)
        if "attention_mask" in self.batch:
            return shape_of(self.batch["attention_mask"])[-1]
        return None

    def owner(self):
        owner = np.full(self.total, -1)
        for k, (start, end) in enumerate(self.spans):
            owner[start:end] = k
        return owner

    def may_read(self, k):
        line = set()
        while k is not None:
            line.add(k)
            k = self.parents[k]
        return line

    def offset(self, k):
        return self.start + sum(end - start for i, (start, end) in enumerate(self.spans) if i in self.may_read(k) and i != k)

    def positions(self):
        right = [None] * self.total
        for k, (start, end) in enumerate(self.spans):
            right[start:end] = range(self.offset(k), self.offset(k) + end - start)
        return right


def key_row(batch):
    """The 0/1 keep mask over keys of a single row, when that is what attention_mask is."""
    mask = batch.get("attention_mask")
    if mask is None or batch.get("mask_meaning", "keep") != "keep":
        return None
    shape = shape_of(mask)
    if len(shape) == 2 and shape[0] != 1 or len(shape) > 2:
        return None
    values = values_of(mask).reshape(-1)
    return values.astype(bool) if set(values.tolist()) <= {0.0, 1.0} else None


def is_dense(batch, queries, keys):
    mask = batch.get("attention_mask")
    shape = shape_of(mask) if mask is not None else []
    if len(shape) < 2 or shape[-2:] != [queries, keys] or any(n != 1 for n in shape[:-2]):
        return False
    return len(shape) > 2 or queries > 1 or "q_len" in batch


def decode_dense(batch, queries, keys):
    values = values_of(batch["attention_mask"]).reshape(queries, keys)
    meaning = batch.get("mask_meaning")
    boolean = str(batch.get("mask_dtype", "bool")).endswith("bool")
    if meaning is None:
        if (values < 0).any() or np.isnan(values).any():
            meaning = "additive"
        elif not boolean and batch["mask_dtype"].split(".")[-1].startswith(("float", "bfloat")):
            meaning = "additive"
        else:
            meaning = "block" if batch.get("consumer") == "mha" else "keep"
    if meaning == "additive":
        return values > -1000
    return values != 0 if meaning == "keep" else values == 0


def blocks(queries, keys, cu_q, cu_k, top_left=False):
    """Causal blocks of a varlen call, bottom-right unless told otherwise."""
    seen = np.zeros((queries, keys), bool)
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        shift = 0 if top_left else (k1 - k0) - (q1 - q0)
        for i in range(q1 - q0):
            seen[q0 + i, k0:max(k0, min(k1, k0 + i + shift + 1))] = True
    return seen


def version(text):
    return tuple(int(n) for n in re.findall(r"\d+", text)[:2])


def starts_from_positions(positions):
    cuts = [0] + [i for i in range(1, len(positions)) if positions[i] != positions[i - 1] + 1]
    return cuts + [len(positions)]


def will_allow(batch, queries, keys):
    """What the consumer does with the batch, or None when this oracle does not know."""
    if "mask_planes" in batch:
        return None
    consumer, way = batch.get("consumer"), batch.get("attn_implementation", "sdpa")
    causal = np.tril(np.ones((queries, keys), bool), keys - queries)
    if consumer == "flash_varlen":
        old = "library" in batch and version(batch["library"]) < (2, 1)
        if "cu_seqlens_q" in batch:
            return blocks(queries, keys, batch["cu_seqlens_q"], batch["cu_seqlens_k"], old)
        if "cu_seqlens" in batch:
            cu = batch["cu_seqlens"]
            usable = cu[0] == 0 and cu[-1] <= keys and all(a <= b for a, b in zip(cu, cu[1:]))
            return blocks(queries, keys, cu, cu) if usable else None
        return causal if batch.get("is_causal") and "q_len" in batch else None
    if is_dense(batch, queries, keys):
        return decode_dense(batch, queries, keys)
    keep = key_row(batch)
    if keep is not None and len(keep) == keys and queries == keys and consumer in ("hf", None):
        if way == "flash_attention_2":
            if keep.all():
                cuts = starts_from_positions(rows_of(batch["position_ids"])[0]) if "position_ids" in batch else [0, keys]
                return blocks(queries, keys, cuts, cuts)
            return causal & keep[None] & keep[:, None]
        return causal & keep[None]
    if "attention_mask" in batch:
        return None
    if consumer == "hf" and queries == keys:
        if "position_ids" not in batch:
            return causal
        cuts = starts_from_positions(rows_of(batch["position_ids"])[0])
        packed = way == "flash_attention_2" or version(batch.get("library", "9.0")) >= (4, 54)
        return blocks(queries, keys, cuts, cuts) if packed else causal
    if consumer == "eager":
        return np.ones((queries, keys), bool)
    if consumer == "sdpa" and batch.get("is_causal"):
        return np.tril(np.ones((queries, keys), bool))
    return None


# ---------------------------------------------------------------- what the oracle knows about cells

def cells(batch, row):
    """Facts about cells: code -> keys. Second value: True when should and will could both be built."""
    if row.total is None and "q_len" not in batch and "cu_seqlens_q" not in batch:
        return {}, False
    mask = batch.get("attention_mask")
    if mask is not None and math.prod(shape_of(mask)) > 10**7:
        return {}, False
    if any(isinstance(batch.get(key), list) and batch[key] and isinstance(batch[key][0], list) and len(batch[key]) > 1
           for key in ("input_ids",)) or (row.total or 0) > 2000:
        return {}, False
    facts = {}
    if "cu_seqlens_q" in batch:
        queries, keys = batch["cu_seqlens_q"][-1], batch["cu_seqlens_k"][-1]
        if len(batch["cu_seqlens_q"]) != len(batch["cu_seqlens_k"]):
            return {}, False
        should = blocks(queries, keys, batch["cu_seqlens_q"], batch["cu_seqlens_k"])
        own, related = should.copy(), np.ones_like(should)
        judged = np.ones(queries, bool)
        owner = np.zeros(queries, int)
    elif "q_len" in batch and not row.given:
        queries, keys = batch["q_len"], batch["kv_len"]
        should = np.tril(np.ones((queries, keys), bool), keys - queries)
        own = related = np.ones_like(should)
        judged = np.ones(queries, bool)
        owner = np.zeros(queries, int)
    else:
        queries = keys = row.total
        owner = row.owner()
        lines = [row.may_read(k) for k in range(len(row.spans))]
        related = np.array([[owner[i] >= 0 and owner[j] in lines[owner[i]] for j in range(keys)] for i in range(queries)])
        own = owner[:, None] == owner[None]
        order = np.arange(keys)[None] <= np.arange(queries)[:, None]
        should = related & (order if batch.get("want_causal", True) else True)
        judged = np.array([k >= 0 and k not in row.pads for k in owner])
        keep = key_row(batch)
        if keep is not None and len(keep) == keys:
            judged &= keep
            should = should & keep[None]
    will = will_allow(batch, queries, keys)
    if will is None:
        return {}, False
    place_q, place_k = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None]
    late = (place_k > place_q) & own
    window = batch.get("sliding_window") or 0
    if window > 0:
        near = place_q - place_k < window
        plain, should = should, should & near
        wrong = (will != should) & judged[:, None] & related & ~late
        same = lambda other: (will == other)[judged].all()
        code = "WINDOW_IGNORED" if same(plain) else "WINDOW_OFF_BY_ONE" if any(
            same(plain & (place_q - place_k < window + d)) for d in (-1, 1)) else None
        if wrong.any() and code:
            facts[code] = {"count": int(wrong.sum()), "indexes": rows_with(wrong)}
    live = judged[:, None]
    leak = will & ~related & live
    if leak.any() and "forbid" not in batch:
        pairs = sorted({(int(owner[i]), int(owner[j])) for i, j in zip(*np.nonzero(leak))})
        pairs = [{"reader": a, "read": b, "count": int(leak[owner == a][:, owner == b].sum())} for a, b in pairs]
        facts["CROSS_SEGMENT_LEAK"] = {"count": int(leak.sum()), "indexes": rows_with(leak), "pairs": pairs}
    future = will & late & live
    if future.any() and batch.get("want_causal", True):
        facts["LEAK_FUTURE"] = {"count": int(future.sum()), "indexes": rows_with(future)}
        if mask is None and (will.all() or not batch.get("is_causal", True)):
            facts["CAUSAL_MISSING"] = {"count": int(future.sum())}
    hidden = should & ~will & live
    if hidden.any() and "WINDOW_OFF_BY_ONE" not in facts:
        facts["HIDDEN_KEYS"] = {"count": int(hidden.sum()), "indexes": rows_with(hidden)}
        if not batch.get("want_causal", True) and not (hidden & ~late).any():
            facts["CAUSAL_UNWANTED"] = {"count": int(hidden.sum())}
    if keys != queries and ("q_len" in batch or "cu_seqlens_q" in batch):
        cu = (batch.get("cu_seqlens_q", [0, queries]), batch.get("cu_seqlens_k", [0, keys]))
        corner = blocks(queries, keys, *cu, top_left=True)
        if (will == corner).all() and (corner != should).any():
            facts["ALIGN_TOP_LEFT"] = {"count": int((will != should).sum())}
    empty = ~will.any(1)
    by_design = np.arange(queries) < queries - keys
    if (empty & judged & ~by_design).any():
        facts["ROW_EMPTY"] = {"level": "error", "indexes": np.nonzero(empty & judged & ~by_design)[0].tolist()}
    elif empty.any() and "ROW_EMPTY" not in facts:
        facts["ROW_EMPTY"] = {"level": "note", "indexes": np.nonzero(empty)[0].tolist()}
    if "forbid" in batch:
        bad = np.zeros_like(will)
        for (q0, q1), (k0, k1) in batch["forbid"]:
            bad[q0:q1, k0:k1] |= will[q0:q1, k0:k1]
        if bad.any():
            facts["FORBIDDEN_CELL"] = {"count": int(bad.sum()), "indexes": rows_with(bad)}
        facts.pop("LEAK_FUTURE", None), facts.pop("HIDDEN_KEYS", None)
    return facts, True


def rows_with(cells_):
    return np.nonzero(cells_.any(1))[0].tolist()


# ---------------------------------------------------------------- what the oracle knows about everything else

def padded_ids(batch):
    """Keep mask that follows from ids: the run of pad ids on the padding side (one row alone: that run, too)."""
    out = []
    for ids in rows_of(batch["input_ids"]):
        keep, order = [1] * len(ids), range(len(ids))
        for i in order if batch.get("padding_side", "left") == "left" else reversed(order):
            if ids[i] != batch["pad_token_id"]:
                break
            keep[i] = 0
        out.append(keep)
    return out


def like(value, template):
    return value if isinstance(template[0], list) else value[0]


def others(batch, row):
    facts = {}

    def put(code, **keys):
        facts.setdefault(code, {}).update(keys)

    mask, ids, positions = batch.get("attention_mask"), batch.get("input_ids"), batch.get("position_ids")
    keep = None
    if mask is not None and len(shape_of(mask)) <= 2 and batch.get("mask_meaning", "keep") == "keep":
        values = values_of(mask)
        if values is not None and values.size and set(values.reshape(-1).tolist()) <= {0.0, 1.0}:
            keep = [[int(v) for v in line] for line in values.reshape(-1, values.shape[-1])]

    # positions
    if positions is not None and len(shape_of(positions)) <= 2:
        length = shape_of(positions)[-1]
        want = shape_of(ids if ids is not None else mask if mask is not None and "q_len" not in batch else positions)[-1]
        if length != want:
            put("POS_LENGTH", found=length, expected=want)
        elif row.given and len(rows_of(positions)) == 1:
            right, given = row.positions(), rows_of(positions)[0]
            bad = [s for k, (s, _) in enumerate(row.spans) if k not in row.pads and given[s] != right[s]]
            soft = [None if right[i] is None or k in row.pads else right[i] for i, k in enumerate(row.owner())]
            put("right positions", value=agree(given, soft))
            put("POS_NOT_RESET", indexes=bad, expected=like([right], positions))
            put("POS_START", expected=like([right], positions))
            tail = length - next((i for i, p in enumerate(reversed(given)) if p), length)
            if length - tail > 1:
                put("PSEUDO_SEGMENTS", indexes=list(range(tail, length)), expected=like([right], positions))
        elif keep and len(keep) == len(rows_of(positions)) and len(keep[0]) == length:
            right = [[sum(k[:i]) + row.start if k[i] else None for i in range(length)] for k in keep]
            put("right positions", value=agree(rows_of(positions), right))
            kind = {"rope": "note", "absolute": "error"}.get(batch.get("position_kind"))
            put("POS_LEFT_PAD", expected=like(right, positions), **({"level": kind} if kind else {}))
            put("POS_COUNTS_PADS", expected=like(right, positions))
        elif batch.get("past_length") is not None:
            past = batch["past_length"]
            put("right positions", value=agree(rows_of(positions)[0], list(range(past, past + length))))
            put("OK_CONTINUATION", level="note")
    if "decode_positions" in batch:
        given = rows_of(batch["decode_positions"])
        sizes = [sum(k) for k in keep] if keep else [len(p) for p in rows_of(positions)]
        right = [[n + i for i in range(len(line))] for n, line in zip(sizes, given)]
        put("right decode positions", value=agree(given, right))
        for code in ("POS_FROZEN", "POS_SHARED_ACROSS_ROWS", "POS_COUNTS_PADS"):
            put(code, expected=like(right, batch["decode_positions"]))
    for key in ("special_tokens_mask", "labels"):
        if key in batch and ids is not None and len(batch[key]) != shape_of(ids)[-1]:
            put("LENGTH_MISMATCH", found=len(batch[key]), expected=shape_of(ids)[-1])

    # varlen
    cu = batch.get("cu_seqlens")
    if cu:
        right = [0] + [end for _, end in row.spans] if row.given else None
        if cu[0] != 0:
            put("CU_NO_LEADING_ZERO", expected=right or [0] + cu)
        if row.total and cu[-1] < row.total:
            padding = row.given and all(k in row.pads for k, (_, e) in enumerate(row.spans) if e > cu[-1])
            put("CU_END", indexes=list(range(cu[-1], row.total)), level="warning" if padding else "error")
            if right and not padding:
                put("CU_END", expected=right)
        steps = [b - a for a, b in zip(cu, cu[1:])]
        if 0 in steps:
            put("CU_ZERO_LENGTH", expected=sorted(set(cu)))
        if min(steps) < 0 and right:
            put("CU_NEGATIVE", expected=right)
        if "max_seqlen" in batch and batch["max_seqlen"] < max(steps):
            put("CU_MAX_SEQLEN", found=batch["max_seqlen"], expected=max(steps))
    if batch.get("cu_dtype", "int32") != "int32":
        put("CU_DTYPE", expected="int32")
    if "cu_seqlens_q" in batch and len(batch["cu_seqlens_q"]) != len(batch["cu_seqlens_k"]) and row.given:
        put("CU_QK_MISMATCH", expected=[0] + [end for _, end in row.spans])

    # masks by value and shape
    if mask is not None:
        shape = shape_of(mask)
        cells_ = math.prod(shape)
        if cells_ > LIMIT:
            put("MASK_TOO_LARGE", found=cells_, expected=LIMIT)
        elif cells_ < 10**7:
            values = values_of(mask)
            if np.isnan(values).any():
                put("MASK_NAN", count=int(np.isnan(values).sum()))
            top = LARGEST.get(batch.get("mask_dtype", ""))
            finite = values[np.isfinite(values)]
            if top and finite.size and finite.min() < -top * 1.001:
                put("MASK_SENTINEL_UNREPRESENTABLE", found=float(finite.min()))
            if finite.size and (batch.get("mask_meaning") == "additive" or finite.min() < 0) and -1000 < finite.min() < 0:
                put("MASK_SENTINEL_WEAK", found=float(finite.min()))
        if "q_len" in batch and len(shape) == 4:
            want = [shape[0], 1, batch["q_len"], batch["kv_len"]]
            if shape[-2:] != want[-2:]:
                put("MASK_SHAPE", found=shape, expected=want)
        if len(shape) == 3 and ids is not None and shape[0] == len(ids) and shape[0] > 1:
            put("MASK_SHAPE", found=shape, expected=[shape[0], 1, *shape[1:]])
        kind, dtype = batch.get("mask_dtype", "bool"), batch.get("dtype")
        if kind.startswith("int"):
            put("MASK_DTYPE", expected="bool")
        elif kind != "bool" and dtype and kind != dtype:
            put("MASK_DTYPE", expected=dtype)
    if "mask_planes" in batch:
        total = sum(values_of(plane) for plane in batch["mask_planes"])
        put("MASK_OVERFLOW", count=int((total < -LARGEST[batch["mask_dtype"]] * 1.001).sum()))
    if "bias_width" in batch and row.total * batch["bias_width"] > LIMIT:
        put("SIZE_OVERFLOW", found=row.total * batch["bias_width"], expected=LIMIT)

    # padding and the column that is read
    if "pad_token_id" in batch and ids is not None:
        right = like(padded_ids(batch), ids)
        put("PAD_IS_EOS", expected=right)
        put("PAD_MASK_MISSING", expected=right)
    if "read_index" in batch and (keep or "pad_token_id" in batch):
        marks = keep or padded_ids(batch)
        last = [max(i for i, k in enumerate(line) if k) for line in marks]
        read = batch["read_index"]
        width = len(marks[0])
        put("right column", value=[r % width for r in (read if isinstance(read, list) else [read] * len(last))] == last)
        for code in ("READ_INDEX", "LAST_TOKEN"):
            put(code, expected=last if isinstance(read, list) or len(last) > 1 else last[0])
    if batch.get("padding_side") == "right" and batch.get("task") == "generate":
        put("PAD_SIDE", expected="left")

    # special tokens and tokenizing
    bos = batch.get("bos_token_id")
    if bos is not None and ids is not None and not isinstance(ids[0], list):
        double = sorted({i for j in range(1, len(ids)) if ids[j] == ids[j - 1] == bos for i in (j - 1, j)})
        starts = {s for s, _ in row.spans}
        middle = [i for i, t in enumerate(ids) if t == bos and i not in starts and i not in double]
        if double:
            put("BOS_DOUBLE", indexes=double)
        if middle:
            put("BOS_MID", indexes=middle)
        put("bos right", value=not double and not middle)
    if "paths" in batch:
        one, two = batch["paths"].values()
        differ = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
        if set(batch["paths"]) == {"prompt", "full"}:
            one, two = batch["paths"]["prompt"], batch["paths"]["full"]
            put("prefix right", value=two[:len(one)] == one)
            if two[:len(one)] != one:
                put("BOUNDARY_MERGE", indexes=[differ])
        else:
            put("paths right", value=one == two)
            if one != two:
                put("PATHS_DISAGREE", indexes=[differ])
    for key, code in (("special_ids", "SPECIAL_SPLIT"), ("template_markers", "TEMPLATE_TOKENIZER_MISMATCH")):
        long = [len(v) for v in batch.get(key, {}).values() if len(v) != 1]
        if long:
            put(code, found=long[0], expected=1)
    if "token_bytes" in batch:
        data = [bytes.fromhex(t) for t in batch["token_bytes"]]
        cut = []
        for start, _ in row.spans[1:]:
            try:
                b"".join(data[:start]).decode("utf-8")
            except UnicodeDecodeError:
                cut.append(start)
        put("characters right", value=not cut)
        if cut:
            put("SPLIT_CHARACTER", indexes=cut)

    # labels and spans
    labels = batch.get("labels")
    if labels is not None and ids is not None:
        spans = [(cu[i], cu[i + 1]) for i in range(len(cu) - 1)] if cu and not row.given else row.spans
        lasts = [end - 1 for start, end in spans if end > start]
        shifted = batch.get("labels_shifted", False)
        if shifted:
            bad = [i for i in lasts if labels[i] != -100]
            put("borders right", value=not bad)
            if bad:
                put("LABEL_CROSSES_BOUNDARY", indexes=bad, expected=[-100 if i in bad else v for i, v in enumerate(labels)])
        named = [span for span in batch.get("spans", {}).values() if span]
        if named:
            step = 1 if shifted else 0
            inside = lambda t: any(a <= t < b for a, b in named)
            right = [ids[i + step] if i + step < len(ids) and inside(i + step) and not (shifted and i in lasts) else -100
                     for i in range(len(ids))]
            put("spans right", value=right == labels)
            for code in ("SPAN_OFF_BY_ONE", "SPAN_OVERRUN"):
                put(code, expected=right, indexes=[i for i, (a, b) in enumerate(zip(right, labels)) if a != b])

    # heads and adapters
    if "head_map" in batch:
        group = batch["num_heads"] // batch["num_kv_heads"]
        right = [i // group for i in range(batch["num_heads"])]
        put("heads right", value=right == batch["head_map"])
        put("GQA_ORDER", expected=right)
    adapter = batch.get("adapter", {})
    if adapter.get("lora_alpha") is not None and "given_scaling" in adapter:
        base = adapter["lora_alpha"] / (math.sqrt(adapter["r"]) if adapter.get("use_rslora") else adapter["r"])
        right = base * adapter.get("weight", 1.0)
        put("scale right", value=math.isclose(right, adapter["given_scaling"]))
        put("ADAPTER_SCALE", expected=right, found=adapter["given_scaling"])
    if adapter.get("b_is_zero"):
        put("ADAPTER_NO_EFFECT", level="warning")
    if "names" in adapter:
        unknown = [n for n in adapter["names"] if n is not None and n not in adapter.get("loaded", adapter["names"])]
        if unknown:
            put("ADAPTER_UNKNOWN", found=unknown[0])
        if adapter.get("rows", len(adapter["names"])) != len(adapter["names"]):
            put("ADAPTER_COUNT", found=len(adapter["names"]), expected=adapter["rows"])
    return facts


# ---------------------------------------------------------------- comparing

def agree(a, b, both=True):
    """Equal; null inside an array of `a` (of either, with `both`) stands for any value."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(x is None or both and y is None or agree(x, y, both) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[k], b[k], both) for k in a)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or isinstance(a + b, float) and math.isclose(a, b, rel_tol=1e-6)
    return a == b


def ordered(key, value):
    if key == "pairs" and isinstance(value, list):
        return sorted(value, key=lambda p: (p["reader"], p["read"]))
    return sorted(value) if key == "indexes" and isinstance(value, list) else value


def problems_of_format(case, name):
    out = []

    def want(condition, text):
        if not condition:
            out.append(text)

    want(set(case) == {"id", "title", "source", "batch", "expect"}, f"top-level keys {sorted(case)}")
    if out:
        return out
    batch, expect = case["batch"], case["expect"]
    want(case["id"] == name, f"id {case['id']} in file {name}")
    want(re.fullmatch(r"BR-\d{3}b?|[A-Z]{2,3}-\d{2}", case["id"]), "id form")
    want(case["source"] == "own" or re.match(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+$", case["source"]), "source")
    want(case["source"] != "own" or not case["id"].startswith("BR"), "a report needs its link")
    want(not set(batch) - BATCH_KEYS, f"unknown batch keys {sorted(set(batch) - BATCH_KEYS)}")
    want(not set(batch.get("adapter", {})) - ADAPTER_KEYS, "unknown adapter keys")
    for key, allowed in CHOICES.items():
        want(key not in batch or batch[key] in allowed, f"{key} = {batch.get(key)}")
    for mask in [batch.get("attention_mask")] + batch.get("mask_planes", []):
        if isinstance(mask, dict):
            want(not set(mask) - SHORTHANDS, f"unknown mask shorthand {sorted(mask)}")
            want(mask.get("as") != "additive" or "sentinel" in mask, "additive shorthand needs a sentinel")
    for k, (start, end) in enumerate(batch.get("segments", [])):
        want(0 <= start < end, f"segment {k}")
    want("parents" not in batch or len(batch["parents"]) == len(batch.get("segments", batch.get("lengths", []))), "parents: one a segment")
    want(set(expect) == {"verdict", "findings", "absent"}, f"expect keys {sorted(expect)}")
    if out:
        return out
    verdict, codes = expect["verdict"], [f.get("code") for f in expect["findings"]]
    want(verdict in RANK, f"verdict {verdict}")
    want(all(c in CODES for c in codes + expect["absent"]), f"unknown code in {codes + expect['absent']}")
    want(len(set(codes)) == len(codes), "a code twice")
    want(not set(codes) & set(expect["absent"]), "a code both expected and absent")
    if out:
        return out
    ceilings = []
    for finding in expect["findings"]:
        want(not set(finding) - FINDING_KEYS, f"unknown finding keys {sorted(set(finding) - FINDING_KEYS)}")
        levels = {finding["level"]} if "level" in finding else CODES[finding["code"]]
        want(levels <= CODES[finding["code"]], f"{finding['code']} is never a {finding.get('level')}")
        want(len(levels) == 1 or verdict not in ("ok", "note"), f"{finding['code']} needs a level here")
        ceilings.append({RANK[level] for level in levels})
    if ceilings:
        want(any(RANK[verdict] in c for c in ceilings), "no finding has the level of the verdict")
        want(all(min(c) <= RANK[verdict] for c in ceilings), "a finding above the verdict")
    else:
        want(verdict == "ok", "a verdict without a finding")
    return out


def check_numbers(case):
    """(confirmed values, mismatches, values this oracle cannot recompute)"""
    batch, expect = case["batch"], case["expect"]
    row = Row(batch)
    facts, known = cells(batch, row)
    extra = others(batch, row)
    flags = {k: v["value"] for k, v in extra.items() if "value" in v}
    told = {code: {**extra.get(code, {}), **facts.get(code, {})} for code in set(extra) | set(facts)}
    confirmed, wrong, open_ = 0, [], []
    for finding in expect["findings"]:
        code = finding["code"]
        for key in ("level", "count", "indexes", "pairs", "found", "expected"):
            if key not in finding:
                continue
            if code not in told or key not in told[code]:
                open_.append(f"{code}.{key}")
            elif agree(ordered(key, finding[key]), ordered(key, told[code][key])):
                confirmed += 1
            else:
                wrong.append(f"{code}.{key}: case says {finding[key]}, oracle {told[code][key]}")
    cell_codes = {"CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "HIDDEN_KEYS", "ROW_EMPTY", "FORBIDDEN_CELL", "WINDOW_IGNORED",
                  "WINDOW_OFF_BY_ONE", "ALIGN_TOP_LEFT", "CAUSAL_MISSING", "CAUSAL_UNWANTED"}
    listed = {f["code"] for f in expect["findings"]}
    if known:
        for code in cell_codes & listed - set(facts):
            wrong.append(f"{code}: the oracle finds no such cell")
        for code in cell_codes & set(expect["absent"]):
            confirmed += code not in facts
            if code in facts:
                wrong.append(f"{code} must be absent, oracle finds {facts[code]}")
    if expect["verdict"] != "error":
        if known:
            real = [c for c in facts if facts[c].get("level") != "note"]
            confirmed += not real
            if real:
                wrong.append(f"verdict {expect['verdict']}, oracle finds {real}")
        for flag, value in flags.items():
            soft = listed & {"POS_LEFT_PAD", "POS_NOT_RESET", "PSEUDO_SEGMENTS", "SPLIT_CHARACTER"}
            confirmed += bool(value)
            if not value and not soft:
                wrong.append(f"verdict {expect['verdict']}, but not: {flag}")
    elif "right positions" in flags and not any(c.startswith("POS_") for c in listed) and {"POS_NOT_RESET"} & set(expect["absent"]):
        confirmed += bool(flags["right positions"])
        if not flags["right positions"]:
            wrong.append("POS_NOT_RESET must be absent, but positions differ")
    return confirmed, wrong, open_


def compare_report(case, report, status):
    expect, out = case["expect"], []
    rank = lambda v: max(RANK.get(v, 9), 1)
    if rank(report.get("verdict")) != rank(expect["verdict"]):
        out.append(f"verdict {report.get('verdict')}, expected {expect['verdict']}")
    got = report.get("findings", [])
    for finding in expect["findings"]:
        same = [f for f in got if f.get("code") == finding["code"]]
        if not any(all(agree(ordered(k, v), ordered(k, f.get(k)), both=False) for k, v in finding.items()) for f in same):
            seen = [{k: f.get(k) for k in finding} for f in same] or "not reported"
            out.append(f"wanted {finding}, got {seen}")
    for code in expect["absent"]:
        if any(f.get("code") == code for f in got):
            out.append(f"{code} must be absent")
    if expect["verdict"] in ("ok", "note"):
        out += [f"false alarm {f.get('code')}" for f in got if f.get("level") in ("warning", "error")]
    if status != (1 if expect["verdict"] == "error" else 0):
        out.append(f"exit status {status}")
    return out
