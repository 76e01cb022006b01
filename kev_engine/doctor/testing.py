"""assert_isolated: one line in your own suite that fails when packed segments influence each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kev_engine.doctor.capture import capture
from kev_engine.doctor.probe import Interval, probe


def assert_isolated(model: Any, batch: Mapping[str, Any], segments: Sequence[Interval],
                    parents: Sequence[int | None] | None = None) -> None:
    """Passes where no segment of the packed row influences a stranger; else an AssertionError that says who and why.

    `batch` are the keywords of the forward, with `input_ids` `[1, T]`; `segments` half-open intervals.
    """
    found = probe(model, batch, segments, parents)
    if found.isolated:
        return
    import torch

    with torch.no_grad(), capture(model) as seen:
        model(**batch)
    intent: dict[str, Any] = {"segments": list(segments)} | ({} if parents is None else {"parents": list(parents)})
    report = seen.diagnose(**intent)
    causes = [f"{finding.code}: {finding.message} {finding.repair}" for finding in report.findings
              if finding.level == "error"]
    raise AssertionError("\n".join(["segments are not isolated:", *map(str, found.leaks), *causes]))
