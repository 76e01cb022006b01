"""Makes the pictures of docs/doctor.md, one a family of faults, from the doctor's cases.

    python assets/doctor_pictures.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kev_engine.doctor import diagnose  # noqa: E402
from kev_engine.doctor.picture import save_png  # noqa: E402

CASES = ROOT / "tests" / "doctor" / "cases"
IMAGES = ROOT / "assets" / "images" / "doctor"
SIZE = 192

FAMILIES = {
    "segments": "BR-001", "borders": "boundaries shifted by one BOS", "tree": "BR-161", "polarity": "BR-034",
    "values": "the well-known tutorial mask", "causality": "an encoder behind a causal forward", "corner": "BR-050",
    "window": "BR-099", "varlen": "BR-064", "backend": "block mask handed to a varlen kernel",
    "padding": "left padding without a mask",
    "tail": "flash attention takes a tail of zero positions", "forbidden": "BR-054",
}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, wanted in FAMILIES.items():
        assert save_png(diagnose(batch_of(wanted)), IMAGES / f"{name}.png", SIZE)


def batch_of(wanted: str) -> dict[str, object]:
    """The batch of the case with this id, or whose title starts so."""
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if case["id"] == wanted or case["title"].startswith(wanted):
            return dict(case["batch"])
    raise SystemExit(f"no case is called {wanted!r}")


if __name__ == "__main__":
    main()
