"""The corrected arrays as Python to paste: built from the segments where they follow from them, else written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kev_engine.doctor.repair import form_of

if TYPE_CHECKING:
    from kev_engine.doctor.facts import Facts
    from kev_engine.doctor.judge import Judged
    from kev_engine.doctor.layouts import Segmentation

# What is no tensor stays as it is.
PLAIN = ("padding_side", "cu_dtype", "mask_dtype", "max_seqlen", "read_index", "head_map", "is_causal")
DTYPES = {"cu_seqlens": ", dtype=torch.int32", "cu_seqlens_q": ", dtype=torch.int32",
          "cu_seqlens_k": ", dtype=torch.int32"}


def as_python(repairs: Mapping[str, Any], facts: Facts) -> str:
    """A program that makes the values of `repairs` with torch, each under its key's name; empty without any."""
    lines: list[str] = []
    for key, value in repairs.items():
        if key in ("mask_dtype", "mask_meaning"):
            continue
        name = key.replace(".", "_")
        if value is None:
            lines.append(f"{name} = None")
        elif key == "attention_mask" and "mask_dtype" in repairs and facts.judged:
            lines += _mask(facts, facts.judged[0])
        elif key in PLAIN or not isinstance(value, list) or "." in key:
            lines.append(f"{name} = {value!r}")
        else:
            lines.append(f"{name} = torch.tensor({value!r}{DTYPES.get(key, '')})")
    return "\n".join(["import torch", "", *lines]) + "\n" if lines else ""


def _mask(facts: Facts, judged: Judged) -> list[str]:
    """The mask from its segments; `allowed` is true where a key may be read."""
    batch, segments = facts.batch, judged.segments
    if segments is None:
        queries, keys = judged.should.num_queries, judged.should.num_keys
        if keys < queries:
            return _written(judged, facts)
        lines = [f"allowed = torch.ones({queries}, {keys}, dtype=torch.bool)"
                 + (f".tril({keys} - {queries})  # aligned to the bottom right" if batch.want_causal else "")]
        if facts.window is not None:
            first = f"{keys} - {queries} - {facts.window} + 1"
            lines.append(f"allowed &= torch.ones({queries}, {keys}, dtype=torch.bool).triu({first})")
    else:
        lines = _blocks(segments)
        if batch.want_causal:
            lines.append("allowed = allowed.tril()")
        if facts.window is not None:
            lines += _story(segments)
            lines.append(f"allowed &= story[:, None] - story[None, :] < {facts.window}")
    keep = facts.keep_of(judged.row)
    if keep is not None and not keep.all():
        lines.append(f"allowed &= torch.tensor({keep.astype(int).tolist()}).bool()  # padding is read by nobody")
    return [*lines, _formed(facts)]


def _blocks(segments: Segmentation) -> list[str]:
    lengths, parents = list(segments.layout.lengths), segments.layout.parents
    lines = [f"lengths = torch.tensor({lengths})",
             "segment_ids = torch.repeat_interleave(torch.arange(len(lengths)), lengths)"]
    if any(parent is not None for parent in parents):
        return [*lines, "related = torch.eye(len(lengths), dtype=torch.bool)",
                f"for segment, parent in enumerate({list(parents)}):", "    if parent is not None:",
                "        related[segment] |= related[parent]", "allowed = related[segment_ids][:, segment_ids]"]
    return [*lines, "allowed = segment_ids[:, None] == segment_ids[None, :]"]


def _story(segments: Segmentation) -> list[str]:
    """The position of each token in its own story, ancestors first."""
    starts = list(segments.layout.position_starts)
    return ["starts = torch.cumsum(lengths, 0) - lengths",
            f"story = torch.arange(len(segment_ids)) - (starts - torch.tensor({starts}))[segment_ids]"]


def _written(judged: Judged, facts: Facts) -> list[str]:
    return [f"allowed = torch.tensor({judged.should.dense().astype(int).tolist()}).bool()", _formed(facts)]


def _formed(facts: Facts) -> str:
    batch, form = facts.batch, form_of(facts)
    if form == "block":
        return "attention_mask = ~allowed  # true = hidden"
    if form == "keep":
        return "attention_mask = allowed[None, None]  # [1, 1, T, T], true = may attend"
    dtype = f"torch.{batch.dtype or 'float32'}"
    return (f"attention_mask = torch.zeros(allowed.shape, dtype={dtype}).masked_fill(~allowed, "
            f"torch.finfo({dtype}).min)[None, None]  # added to the scores")
