"""Tokens, tokenizing, labels and spans."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.doctor.faults.edit import Edit, edited, fault, need
from tests.doctor.right import spelt, texts
from tests.doctor.rows import Description


def without_labels(batch: Description) -> Description:
    return {key: value for key, value in batch.items() if key not in ("labels", "labels_shifted", "spans")}


@fault("BOS twice")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    ids = batch["input_ids"].copy()
    ids[random.choice(layout.intervals)[0] + 1] = 1
    return edited(without_labels(batch), "BOS_DOUBLE", input_ids=ids)


@fault("BOS lost")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    ids = batch["input_ids"].copy()
    ids[random.choice(layout.intervals)[0]] = 55
    return edited(without_labels(batch), "BOS_MISSING", input_ids=ids)


@fault("BOS inside a text")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    start, end = random.choice(layout.intervals)
    ids = batch["input_ids"].copy()
    ids[random.randrange(start + 2, end)] = 1
    return edited(without_labels(batch), "BOS_MID", input_ids=ids)


@fault("two tokenizings that differ")
def _(random: Random) -> Edit:
    ids = [random.randint(3, 90) for _ in range(random.randint(1, 6))]
    wrong = random.choice((ids[:-1], [*ids, 5], [*ids[:-1], 91], [1, *ids]))
    return edited({"paths": {"template": ids, "by hand": ids}}, "PATHS_DISAGREE",
                  paths={"template": ids, "by hand": wrong})


@fault("prompt and answer merged")
def _(random: Random) -> Edit:
    _layout, batch = texts(random)
    prompt, full = batch["paths"].values()
    wrong = random.choice(([*prompt[:-1], 99, *full[len(prompt) :]], full[: len(prompt) - 1]))
    return edited(batch, "BOUNDARY_MERGE", paths={"prompt": prompt, "full": wrong})


@fault("a template marker split")
def _(random: Random) -> Edit:
    pieces = [5, 6, 7][: random.randint(2, 3)]
    return edited(texts(random)[1], "TEMPLATE_TOKENIZER_MISMATCH", template_markers={"<|end|>": pieces})


@fault("a special token split")
def _(random: Random) -> Edit:
    return edited(texts(random)[1], "SPECIAL_SPLIT", special_ids={"<s>": [5, 6, 7][: random.randint(2, 3)]})


@fault("a border inside a character")
def _(random: Random) -> Edit:
    tokens, whole = spelt(random)
    inside = sorted(set(range(1, len(tokens))) - set(whole))
    need(inside)
    border, wrong = random.choice(whole[1:-1]), random.choice(inside)
    batch = {"lengths": [border, len(tokens) - border], "token_bytes": tokens}
    return edited(batch, "SPLIT_CHARACTER", lengths=[wrong, len(tokens) - wrong])


@fault("another array of the wrong length")
def _(random: Random) -> Edit:
    _layout, batch = texts(random)
    batch = without_labels(batch)
    key = random.choice(("tokens", "special_tokens_mask", "token_roles", "token_offsets"))
    values = batch[key]
    return edited(batch, "LENGTH_MISMATCH", **{key: random.choice((values[:-1], [*values, values[-1]]))})


@fault("lengths that run over the row")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    batch = {key: batch[key] for key in ("lengths", "input_ids", "consumer", "position_ids")}
    lengths = list(layout.lengths)
    lengths[random.randrange(len(lengths))] += random.randint(1, 3)
    return edited(batch, "LENGTH_MISMATCH", lengths=lengths)


@fault("a span or labels one place off")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    name = random.choice(list(batch["spans"]))
    start, end = batch["spans"][name]
    step = int(batch["labels_shifted"])
    labels = batch["labels"].copy()
    kind = random.randrange(3)
    if kind == 0:  # the last token of the answer is not trained
        need(end - start > 1)
        labels[end - 1 - step] = -100
        return edited(batch, "SPAN_OFF_BY_ONE", labels=labels)
    if kind == 1:  # the token before the answer is
        need(start - step - 1 >= layout.intervals[list(batch["spans"]).index(name)][0])
        labels[start - 1 - step] = batch["input_ids"][start - 1]
        return edited(batch, "SPAN_OFF_BY_ONE", labels=labels)
    need(start - 1 > layout.intervals[list(batch["spans"]).index(name)][0])
    spans = batch["spans"] | {name: [start - 1, end]}
    return edited(batch, "SPAN_OFF_BY_ONE", spans=spans)


@fault("labels shifted twice or not at all")
def _(random: Random) -> Edit:
    _layout, batch = texts(random)
    del batch["spans"]
    right = np.array([label for label in batch["labels"] if label != -100])
    need(len(right) > 2 and len(set(batch["input_ids"])) == len(batch["input_ids"]) - batch["input_ids"].count(1) + 1)
    return edited(batch, "SPAN_OFF_BY_ONE", labels_shifted=not batch["labels_shifted"])


@fault("a span that runs over the row")
def _(random: Random) -> Edit:
    layout, batch = texts(random)
    name = list(batch["spans"])[-1]
    return edited(batch, "SPAN_OVERRUN", spans=batch["spans"] | {
        name: [batch["spans"][name][0], layout.num_tokens + random.randint(1, 3)]})


@fault("a span that was not found")
def _(random: Random) -> Edit:
    _layout, batch = texts(random)
    spans = dict(batch["spans"])
    spans["question"] = random.choice((None, [-1, -1]))
    return edited(batch, "SPAN_UNKNOWN", spans=spans)


@fault("a label that crosses a border")
def _(random: Random) -> Edit:
    layout, batch = texts(random, 2)
    batch = {key: value for key, value in batch.items() if key != "spans"} | {"labels_shifted": True}
    labels = [-100] * layout.num_tokens
    for start, end in layout.intervals:
        labels[start : end - 1] = batch["input_ids"][start + 1 : end]
    wrong = labels.copy()
    border = random.choice(layout.intervals[:-1])[1]
    wrong[border - 1] = batch["input_ids"][border]
    return edited(batch | {"labels": labels}, "LABEL_CROSSES_BOUNDARY", labels=wrong)
