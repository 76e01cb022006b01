"""capture: what each attention layer of a transformers model really receives, and which cells follow from it.

    with capture(model) as seen:
        model(**batch)
    report = seen.diagnose(lengths=[5, 3, 4])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kev_engine.doctor.finding import RANK
from kev_engine.doctor.report import Report, diagnose
from kev_engine.errors import InvalidField

if TYPE_CHECKING:
    import torch

# The names under which a model hands its layers the borders of a varlen call.
CU_NAMES = (("cu_seq_lens_q", "cu_seqlens_q"), ("cu_seq_lens_k", "cu_seqlens_k"))


@dataclass(frozen=True, eq=False)
class Received:
    """What one attention layer was handed in one forward. Sizes in tokens; `mask` as it came, None = no mask."""

    layer: int
    backend: str
    mask: Any
    is_causal: bool
    window: int | None
    num_rows: int
    num_queries: int
    num_keys: int
    dtype: str
    device: str
    position_ids: torch.Tensor | None
    cu_seqlens: dict[str, torch.Tensor]

    def description(self) -> dict[str, Any]:
        """The same facts with the keys of docs/doctor.md."""
        facts: dict[str, Any] = {"dtype": self.dtype, "device": self.device} | self.cu_seqlens
        if self.num_queries == self.num_keys:
            facts["total"] = self.num_queries
        else:
            facts |= {"q_len": self.num_queries, "kv_len": self.num_keys}
        if self.window is not None:
            facts["sliding_window"] = self.window
        if self.position_ids is not None:
            facts["position_ids"] = self.position_ids
        flash = self.backend.startswith("flash")
        if self.mask is not None:
            # A layer's mask of cells is used as it is, by the attention function that this names.
            facts |= {"attention_mask": self.mask, "consumer": "hf",
                      "attn_implementation": "flash_attention_2" if flash else self.backend}
        elif flash:
            facts |= {"consumer": "flash_varlen", "is_causal": self.is_causal} if self.cu_seqlens else {
                "consumer": "hf", "attn_implementation": "flash_attention_2"}
        elif self.backend == "sdpa":
            # transformers aligns to the bottom right itself; a single query needs no flag.
            facts |= {"consumer": "sdpa", "is_causal": self.is_causal} if self.num_queries == self.num_keys else {
                "consumer": "hf"}
        else:
            facts["consumer"] = "eager"
        return facts


@dataclass(eq=False)
class Seen:
    """What was captured: one entry a layer for the latest forward of the model."""

    rotary: bool
    layers: list[Received] = field(default_factory=list)
    position_ids: torch.Tensor | None = None

    def diagnose(self, **intent: Any) -> Report:
        """The worst report among the layers, measured against `lengths`, `segments`, `parents` and so on.

        Raises InvalidField where no attention layer ran, or where a layer used a mask that cannot be read.
        """
        return max(self.reports(**intent), key=lambda report: RANK[report.verdict])

    def reports(self, **intent: Any) -> list[Report]:
        """One report a layer; layers that were handed the same objects share one."""
        if not self.layers:
            raise InvalidField("capture", "no layer", "the model must run inside the block, through an attention "
                               "function that transformers registers")
        known: dict[tuple[Any, ...], Report] = {}
        found = []
        for layer in self.layers:
            same = (id(layer.mask), layer.backend, layer.is_causal, layer.window, layer.num_keys)
            if same not in known:
                facts = layer.description()
                if self.position_ids is not None:
                    facts["position_ids"] = self.position_ids
                if self.rotary:
                    facts["position_kind"] = "rope"
                known[same] = diagnose(facts | intent)
            found.append(known[same])
        return found


@contextmanager
def capture(model: torch.nn.Module) -> Iterator[Seen]:
    """Records what the attention layers of `model` receive while the block runs; other models are left alone.

    Works for every transformers model that looks its attention function up in `AttentionInterface`, `eager` included.
    """
    from transformers.modeling_utils import AttentionInterface

    config = getattr(model, "config", None)
    seen = Seen(rotary=bool(getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)))
    mine = {id(module) for module in model.modules()}
    lookup = AttentionInterface.get_interface

    def watched(self: Any, backend: str, default: Callable[..., Any]) -> Callable[..., Any]:
        attend = lookup(self, backend, default)

        def attend_and_record(module: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any, **more: Any) -> Any:
            if id(module) in mine:
                seen.layers.append(_received(module, backend or "eager", query, key, mask, more, len(seen.layers)))
            return attend(module, query, key, value, mask, *rest, **more)

        return attend_and_record

    def starts(module: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> None:
        seen.layers.clear()
        positions = more.get("position_ids")
        seen.position_ids = None if positions is None else positions.detach().clone()

    hook = model.register_forward_pre_hook(starts, with_kwargs=True)
    AttentionInterface.get_interface = watched
    try:
        yield seen
    finally:
        AttentionInterface.get_interface = lookup
        hook.remove()


def _received(module: Any, backend: str, query: Any, key: Any, mask: Any, more: dict[str, Any], count: int) -> Received:
    causal = more.get("is_causal")
    positions = more.get("position_ids")
    return Received(
        layer=getattr(module, "layer_idx", count), backend=backend, mask=mask,
        is_causal=bool(getattr(module, "is_causal", True) if causal is None else causal),
        window=more.get("sliding_window"), num_rows=query.shape[0], num_queries=query.shape[2], num_keys=key.shape[2],
        dtype=str(query.dtype).removeprefix("torch."), device=str(query.device), position_ids=positions,
        cu_seqlens={ours: more[theirs] for theirs, ours in CU_NAMES if more.get(theirs) is not None},
    )
