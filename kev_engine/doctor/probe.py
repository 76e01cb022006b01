"""probe: whether segments of a packed row influence each other, by behaviour and not by pictures.

Four measurements, each with a noise floor that is measured on the same model and batch:

* perturb: another segment's tokens are replaced; do mine move? Shapes stay equal: the floor is that of two equal runs.
* duplicate: one segment is made a copy of another of the same length; do both give the same logits?
* alone: a segment with its ancestors by itself; does it give the logits it gives in the row?
* gradient: do my logits depend on another segment's embeddings? Hidden keys have weight 0, so the floor is rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kev_engine.errors import InvalidField

if TYPE_CHECKING:
    import torch

Interval = tuple[int, int]
# Kernels may sum in another order when shapes change: this many times the measured difference still counts as noise.
MARGIN = 8.0


@dataclass(frozen=True)
class Measure:
    """`value`: the largest difference of logits (or gradient) in `reader` that `read` has no right to cause.

    Both are segment numbers; `floor` is what the same measurement shows where nothing can leak.
    """

    name: str
    reader: int
    read: int
    value: float
    floor: float

    @property
    def leaks(self) -> bool:
        # NaN is no isolation either.
        return not self.value <= self.floor

    def __str__(self) -> str:
        verdict = "LEAKS" if self.leaks else "isolated"
        return (f"{self.name}: segment {self.reader} against segment {self.read}: {self.value:.3g} "
                f"(noise floor {self.floor:.3g}) {verdict}")


@dataclass(frozen=True)
class Probe:
    """All measurements, in the order they were made; `not_measured` says what could not be, and why."""

    measures: tuple[Measure, ...]
    not_measured: tuple[str, ...] = ()

    @property
    def isolated(self) -> bool:
        return not any(measure.leaks for measure in self.measures)

    @property
    def leaks(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if measure.leaks)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.measures), *(f"not measured: {reason}" for reason in self.not_measured)])


def probe(model: Any, batch: Mapping[str, Any], segments: Sequence[Interval],
          parents: Sequence[int | None] | None = None, seed: int = 0) -> Probe:
    """What the segments of one packed row do to each other.

    `batch` are the keywords of the forward, with `input_ids` `[1, T]`; `segments` half-open intervals. The model is put
    into eval mode for the measurement and back. Raises InvalidField where the row and the segments do not fit.
    """
    import torch

    ids = batch.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.shape[0] != 1:
        raise InvalidField("input_ids", getattr(ids, "shape", ids), "it must be a tensor of one packed row, [1, T]")
    for index, (start, end) in enumerate(segments):
        if not 0 <= start < end <= ids.shape[1]:
            raise InvalidField(f"segments[{index}]", (start, end),
                               f"it must lie inside the row of {ids.shape[1]} tokens")
    training = model.training
    model.eval()
    try:
        return _Run(model, dict(batch), [tuple(span) for span in segments],
                    list(parents or [None] * len(segments)), torch.Generator().manual_seed(seed)).measure()
    finally:
        model.train(training)


@dataclass(eq=False)
class _Run:
    """One probing of one batch."""

    model: Any
    batch: dict[str, Any]
    segments: list[Any]
    parents: list[int | None]
    generator: Any

    def measure(self) -> Probe:
        import torch

        with torch.no_grad():
            base = self.logits(self.ids)
            repeat = _largest(base - self.logits(self.ids))
            found = self.perturb(base, repeat)
            copies, missing = self.duplicates(repeat)
            found += copies + self.alone(base, repeat)
        return Probe(tuple(found + self.gradients()), tuple(missing))

    @property
    def ids(self) -> torch.Tensor:
        ids: torch.Tensor = self.batch["input_ids"]
        return ids

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """`[T, V]` float32."""
        out: torch.Tensor = self.model(**self.batch | {"input_ids": ids}).logits[0].float()
        return out

    def lineage(self, segment: int) -> list[int]:
        """The segment and its ancestors, the root first."""
        chain: list[int] = [segment]
        while (parent := self.parents[chain[-1]]) is not None and parent not in chain:
            chain.append(parent)
        return chain[::-1]

    def strangers(self) -> list[tuple[int, int]]:
        """Pairs (reader, read) where the reader has no right to read."""
        return [(reader, read) for read in range(len(self.segments)) for reader in range(len(self.segments))
                if read not in self.lineage(reader)]

    def other_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """Other ids than these, of the same shape."""
        import torch

        size = self.model.get_input_embeddings().weight.shape[0]
        step: torch.Tensor = torch.randint(1, size, ids.shape, generator=self.generator).to(ids.device)
        return torch.remainder(ids + step, size)

    def perturb(self, base: torch.Tensor, repeat: float) -> list[Measure]:
        found = []
        for read in range(len(self.segments)):
            start, end = self.segments[read]
            changed = self.ids.clone()
            changed[0, start:end] = self.other_tokens(changed[0, start:end])
            moved = (self.logits(changed) - base).abs()
            for reader, other in self.strangers():
                if other == read:
                    first, last = self.segments[reader]
                    found.append(Measure("perturb", reader, read, _largest(moved[first:last]), repeat * MARGIN))
        return found

    def duplicates(self, repeat: float) -> tuple[list[Measure], list[str]]:
        """The first two strangers of one length and one parent, made equal."""
        for reader, read in self.strangers():
            (a, b), (c, d) = self.segments[reader], self.segments[read]
            if reader < read and b - a == d - c and self.parents[reader] == self.parents[read]:
                same = self.ids.clone()
                same[0, c:d] = same[0, a:b]
                logits = self.logits(same)
                # Two rows of one batch that hold the same tokens differ only by the kernels' order of sums.
                floor = MARGIN * max(repeat, self.kernel_noise(same[:, a:b]))
                return [Measure("duplicate", read, reader, _largest(logits[a:b] - logits[c:d]), floor)], []
        return [], ["duplicate: no two segments have the same length and parent"]

    def alone(self, base: torch.Tensor, repeat: float) -> list[Measure]:
        import torch

        found = []
        for segment, (start, end) in enumerate(self.segments):
            if len(self.lineage(segment)) == len(self.segments):
                continue
            parts = [self.ids[:, slice(*self.segments[index])] for index in self.lineage(segment)]
            ids = torch.cat(parts, dim=1)
            logits = self.model(input_ids=ids, use_cache=False).logits[0].float()[-(end - start):]
            others = [index for index in range(len(self.segments)) if index not in self.lineage(segment)]
            floor = MARGIN * max(repeat, self.kernel_noise(ids))
            found.append(Measure("alone", segment, others[0], _largest(logits - base[start:end]), floor))
        return found

    def kernel_noise(self, ids: torch.Tensor) -> float:
        """How much the same tokens' logits differ between shapes, where nothing can leak.

        Three forwards of the tokens alone: as they are, twice in a batch, and with other tokens behind them, which
        causal attention does not read. Rounding of the logits' own dtype is the least.
        """
        import torch

        plain = self.model(input_ids=ids, use_cache=False).logits[0]
        doubled = self.model(input_ids=ids.repeat(2, 1), use_cache=False).logits[1]
        tail = self.other_tokens(self.ids[:, : max(1, self.ids.shape[1] - ids.shape[1])])
        longer = self.model(input_ids=torch.cat([ids, tail], dim=1), use_cache=False).logits[0][: ids.shape[1]]
        rounding = torch.finfo(plain.dtype).eps * _largest(plain.float())
        return max(_largest((doubled - plain).float()), _largest((longer - plain).float()), rounding)

    def gradients(self) -> list[Measure]:
        import torch

        found = []
        embedded = self.model.get_input_embeddings()(self.ids).detach()
        rest = {name: value for name, value in self.batch.items() if name != "input_ids"}
        for reader, (start, end) in enumerate(self.segments):
            strangers = [read for other, read in self.strangers() if other == reader]
            if not strangers:
                continue
            inputs = embedded.clone().requires_grad_(True)
            with torch.enable_grad():
                rows = self.model(**rest | {"inputs_embeds": inputs}).logits[0, start:end].float()
                weights = torch.randn(rows.shape, generator=self.generator).to(rows.device)
                (gradient,) = torch.autograd.grad((rows * weights).sum(), inputs)
            size = gradient[0].float().abs()
            floor = torch.finfo(gradient.dtype).eps * _largest(size[start:end])
            for read in strangers:
                found.append(Measure("gradient", reader, read, _largest(size[slice(*self.segments[read])]), floor))
        return found


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max())


