"""Right batches of every kind that a description can tell, drawn at random: the doctor must find nothing in them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from kev_engine.isolation.layout import PackedLayout, pack
from tests.doctor.rows import BIG, GPU, Description, Row, described, form, row, tree

RIGHT: dict[str, Callable[[Random], Description]] = {}


def right(make: Callable[[Random], Description]) -> Callable[[Random], Description]:
    RIGHT[make.__name__.replace("_", " ")] = make
    return make


@right
def a_mask_of_cells(random: Random) -> Description:
    return row(random).batch()


@right
def a_mask_under_a_name(random: Random) -> Description:
    layout = tree(random, least=2, flat=True)
    way = random.choice((
        {"consumer": "sdpa", "mask_dtype": "bool"}, {"consumer": "flex", "mask_dtype": "bool"},
        {"consumer": "mha", "mask_dtype": "bool", "as": "block"},
        {"consumer": "eager", "mask_dtype": "float32", "as": "additive", "sentinel": -1e9},
        {"consumer": "hf", "mask_dtype": "float16", "dtype": "float16", "as": "additive", "sentinel": -3e4},
    ))
    mask = {"block_causal": list(layout.lengths)} | {key: way[key] for key in ("as", "sentinel") if key in way}
    if way["consumer"] != "mha":
        mask["repeat"] = [1, 1]
    return described(layout, attention_mask=mask, **{key: value for key, value in way.items()
                                                     if key not in ("as", "sentinel")})


@right
def a_learned_bias(random: Random) -> Description:
    """Small numbers of either sign on the keys that may be read."""
    cells = row(random, meaning="additive", pads=False)
    total = cells.total
    noise = np.array([[round(random.uniform(-2, 2), 3) for _ in range(total)] for _ in range(total)])
    if np.count_nonzero(noise[cells.allowed] < 0) < 2:
        noise = -np.abs(noise)
    fill = float(cells.form.fill)
    if not np.isfinite(fill) or cells.form.axes == 3 or cells.form.heads > 1 or np.count_nonzero(cells.allowed) < 2:
        return cells.batch()
    values = np.where(cells.allowed, noise, fill)
    shape = {2: values.shape, 4: (1, 1, *values.shape)}[cells.form.axes]
    return described(cells.layout) | cells.form.handed_over(values.reshape(shape)) | cells.more


@right
def boundaries_of_a_varlen_call(random: Random) -> Description:
    return varlen(random)[1]


def varlen(random: Random, least: int = 1) -> tuple[PackedLayout, Description]:
    """A row for a varlen kernel, now and then with a mask of ones or the lengths alone."""
    layout = tree(random, least, flat=True)
    cu = layout.cu_seqlens.tolist()
    batch = {"lengths": list(layout.lengths), "position_ids": layout.position_ids.tolist(), "cu_dtype": "int32",
             "consumer": "flash_varlen", "device": "cuda", "dtype": random.choice(("bfloat16", "float16"))}
    batch |= {"cu_seqlens": cu} if random.random() < 0.6 else {"cu_seqlens_q": cu, "cu_seqlens_k": cu}
    if random.random() < 0.4:
        batch["attention_mask"] = random.choice(([[1] * layout.num_tokens], [1] * layout.num_tokens))
    if random.random() < 0.5:
        batch["max_seqlen"] = max(layout.lengths) + random.choice((0, 0, 3))
    if random.random() < 0.3:
        batch["sliding_window"] = random.randint(1, 6)
    if random.random() < 0.3:
        batch["is_causal"] = True
    return layout, batch


@right
def varlen_with_a_segment_of_padding(random: Random) -> Description:
    layout = tree(random, 2, flat=True)
    last = layout.num_segments - 1
    keep = (layout.segment_ids != last).astype(int).tolist()
    batch = described(layout, pad_segments=[last], cu_seqlens=layout.cu_seqlens.tolist(), consumer="flash_varlen") | GPU
    return batch | random.choice(({}, {"attention_mask": [keep]}))


@right
def cross_attention_of_a_varlen_call(random: Random) -> Description:
    count = random.randint(1, 4)
    return {"cu_seqlens_q": pack([random.randint(1, 4) for _ in range(count)]).cu_seqlens.tolist(),
            "cu_seqlens_k": pack([random.randint(5, 8) for _ in range(count)]).cu_seqlens.tolist(),
            "want_causal": False, "is_causal": False, "consumer": "flash_varlen", "cu_dtype": "int32", **GPU}


@right
def chunks_behind_a_cache_in_a_varlen_call(random: Random) -> Description:
    new = [random.randint(1, 4) for _ in range(random.randint(1, 4))]
    past = [random.randint(0, 5) for _ in new]
    if not any(past):
        past[0] = 1
    keys = [a + b for a, b in zip(new, past, strict=True)]
    return {"cu_seqlens_q": pack(new).cu_seqlens.tolist(), "cu_seqlens_k": pack(keys).cu_seqlens.tolist(),
            "is_causal": True, "max_seqlen": max(keys), "consumer": "flash_varlen", **GPU}


@right
def restarted_positions_alone(random: Random) -> Description:
    layout = tree(random, flat=True)
    positions = layout.position_ids.tolist()
    batch = described(layout, consumer="hf", position_ids=random.choice((positions, [positions])))
    return batch | random.choice((
        {"library": "transformers 4.57.1"}, {"attn_implementation": "sdpa"}, {"attn_implementation": "eager"}, {},
        {"attn_implementation": "flash_attention_2", **GPU},
        {"attn_implementation": "flash_attention_2", "attention_mask": {"ones": [1, layout.num_tokens]}, **GPU}))


@right
def running_positions_under_rope(random: Random) -> Description:
    """Harmless under a right mask: a note."""
    cells = row(random, least=2, flat=True, window=False, pads=False)
    start = random.randint(0, 3)
    running = list(range(start, start + cells.total))
    return cells.batch(position_ids=running if start == 0 else [p - start for p in running], position_kind="rope")


@right
def one_text(random: Random) -> Description:
    length = random.randint(1, 6)
    batch: Description = {"input_ids": [[random.randint(5, 90) for _ in range(length)]], "consumer": "hf"}
    batch |= random.choice(({}, {"attention_mask": [[1] * length]}, {"attention_mask": [[1.0] * length]}))
    return batch | random.choice(({}, {"position_ids": [list(range(length))]},
                                  {"position_ids": [[list(range(length))]] * 3}))


@right
def a_text_behind_a_cache(random: Random) -> Description:
    past, length = random.randint(1, 6), random.randint(1, 4)
    batch: Description = {"input_ids": [[7] * length], "past_length": past, "consumer": "hf",
                          "position_ids": [list(range(past, past + length))]}
    return batch | random.choice(({}, {"attention_mask": [[1] * (past + length)]}))


@right
def a_chunk_of_cells_behind_a_cache(random: Random) -> Description:
    queries, past = random.randint(1, 4), random.randint(1, 5)
    keys = queries + past
    allowed = np.tril(np.ones((queries, keys), dtype=bool), past)
    way = form(random, consumers=("sdpa", "hf", "eager", "mha"))
    if way.consumer == "hf" and way.axes == 2:
        way = form(random, consumers=("hf",))
    return {"q_len": queries, "kv_len": keys, "past_length": past,
            "position_ids": [list(range(past, keys))]} | way.of(allowed)


@right
def one_query_without_a_mask(random: Random) -> Description:
    past = random.randint(1, 8)
    return {"q_len": 1, "kv_len": past + 1, "past_length": past, "consumer": "sdpa", "is_causal": False}


@right
def cross_attention(random: Random) -> Description:
    return {"q_len": random.randint(1, 5), "kv_len": random.randint(1, 5), "want_causal": False, "is_causal": False,
            "consumer": "sdpa"}


@right
def a_triangle_by_flag(random: Random) -> Description:
    total = random.randint(1, 6)
    return {"total": total, "is_causal": True, "consumer": "sdpa", "position_ids": list(range(total))}


def padded(random: Random, side: str | None = None, least: int = 1) -> tuple[np.ndarray, Description]:
    """A rectangle of texts of different length with all that belongs to it, and its keep mask."""
    side = side or random.choice(("left", "right"))
    rows, width = random.randint(least, 3), random.randint(2, 6)
    sizes = [random.randint(1, width) for _ in range(rows)]
    sizes[random.randrange(rows)] = width
    place = np.arange(width)
    keep = np.array([place >= width - size if side == "left" else place < size for size in sizes])
    positions = np.where(keep, np.cumsum(keep, axis=1) - 1, random.choice((0, 1)))
    ids = np.where(keep, [[random.randint(5, 90) for _ in range(width)] for _ in range(rows)], 0)
    batch = {"attention_mask": keep.astype(int).tolist(), "input_ids": ids.tolist(), "position_ids": positions.tolist(),
             "pad_token_id": 0, "padding_side": side, "consumer": "hf",
             "task": "generate" if side == "left" else random.choice(("train", "score"))}
    if random.random() < 0.3:
        batch |= {"attn_implementation": "flash_attention_2", **GPU}
    return keep, batch


@right
def rows_padded_on_either_side(random: Random) -> Description:
    keep, batch = padded(random)
    sizes = keep.sum(axis=1).tolist()
    if batch["padding_side"] == "left":
        batch |= random.choice(({}, {"read_index": -1}))
        return batch | random.choice(({}, {"decode_positions": sizes if len(sizes) > 1 else [sizes]},
                                      {"decode_positions": [[size, size + 1] for size in sizes]}))
    labels = np.where(keep, batch["input_ids"], -100).tolist()
    return batch | random.choice(({}, {"read_index": [size - 1 for size in sizes]}, {"labels": labels}))


@right
def padding_hidden_by_cells(random: Random) -> Description:
    keep, batch = padded(random)
    total = keep.shape[1]
    cells = np.tril(np.ones((total, total), dtype=bool)) & keep[:, None, None, :]
    cells = cells | (np.eye(total, dtype=bool) & ~keep[:, None, :, None]) if random.random() < 0.5 else cells
    added = random.random() < 0.5
    mask = np.where(cells, 0.0, -1e9) if added else cells
    batch.pop("attn_implementation", None)
    batch.pop("device", None)
    return batch | {"attention_mask": mask.tolist(), "mask_dtype": "float32" if added else "bool", "dtype": "float32",
                    "attn_implementation": "sdpa"}


@right
def planes_that_add_up(random: Random) -> Description:
    length, pads = random.randint(1, 4), random.randint(1, 3)
    total = length + pads
    least = BIG["float32"][0]
    planes = [{"tril": total, "as": "additive", "sentinel": random.choice((least, -1e9))},
              [0.0] * length + [random.choice((-1e9, -1e4))] * pads]
    return {"lengths": [length, pads], "pad_segments": [1], "mask_dtype": "float32", "consumer": "eager",
            "mask_planes": planes}


def forbidden(random: Random) -> tuple[Row, Description]:
    """Segments told only by what must stay hidden."""
    cells = row(random, least=2, flat=True, window=False, both_ways=False, pads=False,
                consumers=("sdpa", "hf", "eager"))
    intervals = cells.layout.intervals
    rectangles = [[list(reader), list(read)] for reader in intervals for read in intervals if reader != read]
    return cells, {"forbid": rectangles, "total": cells.total}


@right
def rectangles_that_stay_hidden(random: Random) -> Description:
    cells, batch = forbidden(random)
    return batch | cells.form.of(cells.allowed)


def texts(random: Random, least: int = 1) -> tuple[PackedLayout, Description]:
    """Packed texts with BOS, labels of a span in each, tokens and their bytes, and two ways of tokenizing."""
    lengths = [random.randint(4, 7) for _ in range(random.randint(least, 3))]
    layout = pack(lengths)
    ids = [random.randint(20, 90) for _ in range(layout.num_tokens)]
    spans: dict[str, list[int]] = {}
    shifted = random.random() < 0.5
    labels = [-100] * len(ids)
    for number, (start, end) in enumerate(layout.intervals):
        ids[start] = 1
        first = random.randint(start + 1, end - 2)
        spans[f"answer {number}"] = [first, end]
        for place in range(first, end):
            labels[place - shifted] = ids[place]
    return layout, {
        "lengths": lengths, "input_ids": ids, "position_ids": layout.position_ids.tolist(), "labels": labels,
        "labels_shifted": shifted, "spans": spans, "bos_token_id": 1, "eos_token_id": 2, "task": "train",
        "consumer": "hf", "tokens": [f"t{token}" for token in ids], "special_tokens_mask": [int(t == 1) for t in ids],
        "token_roles": ["special" if token == 1 else "text" for token in ids],
        "token_offsets": [[place, place + 1] for place in range(len(ids))],
        "paths": {"prompt": ids[:3], "full": ids[:5]}, "special_ids": {"<s>": [1]},
        "template_markers": {"<|end|>": [2]},
    }


@right
def packed_texts_with_labels(random: Random) -> Description:
    layout, batch = texts(random)
    for key in random.sample(("tokens", "labels", "spans", "paths", "position_ids", "eos_token_id", "token_roles"), 3):
        if key != "position_ids" or layout.num_segments == 1:
            del batch[key]
    return batch


SPELLINGS = ("社", "团", "é", "😀", "ü", "ß", "a", "Ж")


def spelt(random: Random, least: int = 2) -> tuple[list[str], list[int]]:
    """Tokens as bytes, some of them parts of one character, and the places that stand between characters."""
    tokens: list[str] = []
    whole = [0]
    while len(whole) <= least + 1 or random.random() < 0.5:
        data = random.choice(SPELLINGS).encode()
        if random.random() < 0.5 and len(data) > 1:
            cut = random.randint(1, len(data) - 1)
            tokens += [data[:cut].hex(), data[cut:].hex()]
        else:
            tokens.append(data.hex())
        whole.append(len(tokens))
    return tokens, whole


@right
def borders_between_characters(random: Random) -> Description:
    tokens, whole = spelt(random)
    border = random.choice(whole[1:-1])
    return {"lengths": [border, len(tokens) - border], "token_bytes": tokens}


@right
def heads_and_adapters(random: Random) -> Description:
    return {**heads(random), **adapters(random)}


def heads(random: Random) -> Description:
    shared, group = random.randint(1, 4), random.randint(1, 4)
    batch: Description = {"num_heads": shared * group, "num_kv_heads": shared, "consumer": "sdpa", "enable_gqa": True}
    return batch | random.choice(({}, {"head_map": [head // group for head in range(shared * group)]}))


def adapters(random: Random) -> Description:
    layout = tree(random, flat=True)
    names = [random.choice((None, "a", "b")) for _ in layout.lengths]
    r, alpha, stabilised = random.choice((4, 8, 64)), random.choice((8, 16, 3.5)), random.random() < 0.5
    weight = random.choice((1.0, 0.5))
    return {"lengths": list(layout.lengths), "adapter": {
        "r": r, "lora_alpha": alpha, "use_rslora": stabilised, "weight": weight,
        "given_scaling": alpha / (r ** 0.5 if stabilised else r) * weight, "matched_modules": random.randint(1, 99),
        "b_is_zero": False, "names": names, "loaded": ["a", "b"], "rows": len(names),
        "token_names": [names[segment] for segment in layout.segment_ids]}}


@right
def layers_with_and_without_a_window(random: Random) -> Description:
    cells = row(random, window=True, both_ways=False)
    return cells.batch(layer_types=random.choice((["sliding_attention", "full_attention"], ["sliding_attention"])))


@right
def layers_with_a_state_and_one_text(random: Random) -> Description:
    length = random.randint(1, 6)
    return {"lengths": [length], "input_ids": [[8] * length], "layer_types": ["linear_attention", "full_attention"],
            "consumer": "hf"}
