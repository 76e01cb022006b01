"""Where a drawn component gets its HTML and its script from."""

from __future__ import annotations

from pathlib import Path

_JS = Path(__file__).parents[2] / "assets" / "js"


def template(name: str) -> str:
    """The HTML of a component, as it stands in assets/js."""
    return (_JS / name).read_text("utf-8")


def script(*names: str) -> str:
    """One script out of several files of assets/js; they share their names."""
    return "\n".join((_JS / name).read_text("utf-8") for name in names)
