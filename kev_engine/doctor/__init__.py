"""The Mask Doctor: what attention really receives, what is wrong with it, and the repair.

`diagnose` needs numpy alone. What a running model does stands in `capture`, `probe` and `testing`, which need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kev_engine.doctor.report import Finding, Report, diagnose

_HOMES = {"Finding": "finding", "Report": "report", "diagnose": "report"}

__all__ = ["Finding", "Report", "diagnose"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
