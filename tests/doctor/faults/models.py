"""Heads, layers and adapters."""

from __future__ import annotations

import copy
from random import Random

from tests.doctor.faults.edit import Edit, edited, fault, need
from tests.doctor.right import adapters, heads
from tests.doctor.rows import row


@fault("key/value heads that do not fit")
def _(random: Random) -> Edit:
    batch = heads(random)
    need(batch["num_kv_heads"] < batch["num_heads"])
    batch.pop("head_map", None)
    return edited(batch, "GQA_SHAPE", **random.choice(({"enable_gqa": False}, {"num_heads": batch["num_heads"] + 1}))
                  if batch["num_kv_heads"] > 1 else {"enable_gqa": False})


@fault("key/value heads in the wrong order")
def _(random: Random) -> Edit:
    batch = heads(random)
    shared, group = batch["num_kv_heads"], batch["num_heads"] // batch["num_kv_heads"]
    need(shared > 1 and group > 1)
    order = [head // group for head in range(shared * group)]
    return edited(batch | {"head_map": order}, "GQA_ORDER", head_map=[head % shared for head in range(shared * group)])


@fault("a layer with a state")
def _(random: Random) -> Edit:
    cells = row(random, least=2, window=False, pads=False)
    layers = ["full_attention"] * 3
    wrong = layers.copy()
    wrong[random.randrange(3)] = random.choice(("linear_attention", "mamba", "conv", "recurrent", "rwkv7"))
    return edited(cells.batch(layer_types=layers), "NOT_PACKABLE", layer_types=wrong)


def adapted(random: Random, *codes: str, **changes: object) -> Edit:
    batch = adapters(random)
    wrong = copy.deepcopy(batch)
    wrong["adapter"] = {key: value for key, value in (wrong["adapter"] | changes).items() if value is not None}
    return Edit(batch, wrong, codes)


@fault("an adapter scaled wrongly")
def _(random: Random) -> Edit:
    edit = adapted(random, "ADAPTER_SCALE")
    adapter = edit.wrong["adapter"]
    if random.random() < 0.5:
        adapter["use_rslora"] = not adapter["use_rslora"]
    else:
        adapter["given_scaling"] *= random.choice((0.5, 2, 1.01))
    return edit


@fault("an adapter's alpha lost")
def _(random: Random) -> Edit:
    return adapted(random, "ADAPTER_ALPHA_MISSING", lora_alpha=None)


@fault("an adapter that matches nothing")
def _(random: Random) -> Edit:
    return adapted(random, "ADAPTER_NOTHING_MATCHED", matched_modules=0)


@fault("an adapter without effect")
def _(random: Random) -> Edit:
    return adapted(random, "ADAPTER_NO_EFFECT", b_is_zero=True)


@fault("an adapter that is not loaded")
def _(random: Random) -> Edit:
    edit = adapted(random, "ADAPTER_UNKNOWN")
    need("a" in edit.right["adapter"]["names"])
    edit.wrong["adapter"]["loaded"] = ["b", "c"]
    return edit


@fault("names for another number of rows")
def _(random: Random) -> Edit:
    edit = adapted(random, "ADAPTER_COUNT")
    edit.wrong["adapter"]["rows"] += random.choice((-1, 1, 3))
    return edit


@fault("a token through another adapter")
def _(random: Random) -> Edit:
    edit = adapted(random, "ADAPTER_MISROUTED")
    names = edit.wrong["adapter"]["token_names"]
    token = random.randrange(len(names))
    names[token] = random.choice([name for name in (None, "a", "b") if name != names[token]])
    return edit
