"""What the Memory tab plans: form values -> Plan, and a Plan as rows for files. A mistake names its field."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kev_engine.errors import InvalidField
from kev_engine.models.footprint import BITS, GB, GIB, Cell, Footprint, MaskBytes

if TYPE_CHECKING:
    from kev_engine.models.footprint import ModelShape

AUTO = "auto"
DTYPES = (AUTO, *BITS)
UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": GB, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": GIB, "tib": 2**40}
SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
FIRST_CONTEXT, LAST_CONTEXT, USUAL_CONTEXT = 1024, 131_072, 32_768
_AMOUNT = re.compile(r"([0-9][0-9,_]*\.?[0-9]*|\.[0-9]+)\s*([a-zA-Z]*)")


@dataclass(frozen=True)
class PlanForm:
    """What stands in the fields, as text. `config` (a pasted config.json) counts before `model` (a name).

    `parameters` empty: counted from the configuration. `weight_dtype` auto: the published one, else bfloat16;
    `kv_dtype` auto: that of the weights where it has 16 bits or more, else bfloat16.
    """

    model: str = ""
    config: str = ""
    weight_dtype: str = AUTO
    kv_dtype: str = AUTO
    device: str = "80 GiB"
    usable: str = "90"
    context: str = "8192"
    concurrency: str = "8"
    parameters: str = ""


PLAN_FIELDS = tuple(item.name for item in fields(PlanForm))


@dataclass(frozen=True)
class Plan:
    """A footprint, the case that was asked for, and the table around it."""

    footprint: Footprint
    asked: Cell
    masks: MaskBytes
    contexts: tuple[int, ...]

    @property
    def table(self) -> tuple[tuple[Cell, ...], ...]:
        return self.footprint.table(self.contexts, CONCURRENCIES)

    def rows(self) -> list[dict[str, object]]:
        """One row a cell of the table, for a CSV file."""
        weights = self.footprint.weight_bytes
        return [
            {
                "context_tokens": cell.context, "questions": cell.concurrency, "kv_bytes": cell.kv_bytes,
                "weight_bytes": weights, "total_bytes": cell.total_bytes,
                "total_gb": None if cell.total_bytes is None else round(cell.total_bytes / GB, 3),
                "total_gib": None if cell.total_bytes is None else round(cell.total_bytes / GIB, 3), "fits": cell.fits,
            }
            for row in self.table for cell in row
        ]

    def as_json(self) -> dict[str, Any]:
        """The whole plan, with the formula and every figure in bytes."""
        found, shape = self.footprint, self.footprint.shape
        return {
            "model": shape.name, "formula_bytes_per_token": found.formula, "bytes_per_token": found.bytes_per_token,
            "layers": [
                {"query_heads": layer.num_heads, "kv_heads": layer.num_kv_heads, "key_size": layer.key_size,
                 "value_size": layer.value_size, "window": layer.window, "reuses_earlier_layer": layer.reuses,
                 "bytes_per_token": size}
                for layer, size in zip(shape.layers, found.bytes_by_layer, strict=True)
            ],
            "bytes_per_token_without_shared_heads": found.bytes_without_sharing,
            "kv_dtype": found.kv_dtype, "weight_dtype": found.weight_dtype, "parameters": shape.num_parameters,
            "weight_bytes": found.weight_bytes, "device_bytes": found.device_bytes, "usable_bytes": found.usable_bytes,
            "asked": {"context_tokens": self.asked.context, "questions": self.asked.concurrency,
                      "kv_bytes": self.asked.kv_bytes, "total_bytes": self.asked.total_bytes, "fits": self.asked.fits,
                      "largest_batch": found.largest_batch(self.asked.context),
                      "longest_context": found.longest_context(self.asked.concurrency)},
            "mask": {"tokens": self.masks.num_tokens, "dense_bool_bytes": self.masks.dense_bool,
                     "dense_additive_bytes": self.masks.dense_additive(found.weight_dtype),
                     "cu_seqlens_bytes": self.masks.cu_seqlens},
            "table": self.rows(),
        }


@dataclass(frozen=True)
class Asked:
    """The numbers of a form, each checked."""

    device_bytes: int
    usable: float
    context: int
    concurrency: int
    parameters: int | None


def read_numbers(form: PlanForm) -> Asked:
    """Raises InvalidField for the first field that holds no such number."""
    return Asked(
        device_bytes=_bytes(form.device), usable=_share(form.usable), context=_whole("context_tokens", form.context),
        concurrency=_whole("concurrency", form.concurrency), parameters=_parameters(form.parameters),
    )


def make_plan(shape: ModelShape, form: PlanForm, asked: Asked) -> Plan:
    """The plan of a shape. Raises InvalidField for a dtype that is not known."""
    weights, kept = form.weight_dtype.strip(), form.kv_dtype.strip()
    if weights == AUTO:
        weights = shape.dtype if shape.dtype in BITS else "bfloat16"
    if kept == AUTO:
        kept = weights if BITS.get(weights, 0) >= 16 else "bfloat16"
    footprint = Footprint(shape, weights, kept, asked.device_bytes, asked.usable)
    last = min(LAST_CONTEXT, max(shape.max_context or USUAL_CONTEXT, asked.context))
    steps = int(math.log2(max(last, FIRST_CONTEXT) // FIRST_CONTEXT))
    contexts = {FIRST_CONTEXT << step for step in range(steps + 1)} | {asked.context}
    return Plan(footprint, footprint.cell(asked.context, asked.concurrency),
                MaskBytes(asked.concurrency, asked.context), tuple(sorted(contexts)))


def _bytes(text: str) -> int:
    amount, unit = _amount(text)
    if amount is None or unit not in UNITS or not unit:
        raise InvalidField("device", text, "write a size with its unit, as in 80 GB or 80 GiB")
    size = int(amount * UNITS[unit])
    if not 1 <= size <= 2**60:
        raise InvalidField("device", text, "write a size above 0 and at most 1 EiB")
    return size


def _share(text: str) -> float:
    amount, unit = _amount(text.strip().removesuffix("%"))
    if amount is None or unit or not 0 < amount <= 100:
        raise InvalidField("usable", text, "it must be a number above 0 and at most 100")
    return amount / 100


def _parameters(text: str) -> int | None:
    if not text.strip():
        return None
    amount, unit = _amount(text)
    if amount is None or unit not in SCALES or not 1 <= amount * SCALES[unit] <= 2**60:
        raise InvalidField("parameters", text, "write a number, as in 7e9 or 70B, or nothing")
    return round(amount * SCALES[unit])


def _whole(name: str, text: str) -> int:
    amount, unit = _amount(text)
    value = None if amount is None or unit not in ("", "k") else amount * (1024 if unit == "k" else 1)
    if value is None or value != int(value) or not 1 <= value <= 2**31:
        raise InvalidField(name, text, "it must be a whole number of 1 or more")
    return int(value)


def _amount(text: str) -> tuple[float | None, str]:
    """A number and the letters behind it; (None, "") where it is neither."""
    plain = text.strip()
    try:
        value = float(plain.replace(",", "").replace("_", ""))
    except ValueError:
        match = _AMOUNT.fullmatch(plain)
        return (float(match[1].replace(",", "").replace("_", "")), match[2].lower()) if match else (None, "")
    return (value if math.isfinite(value) else None), ""
