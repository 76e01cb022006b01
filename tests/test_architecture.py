"""Imports go one way, the public names are these, and diagnosing plain arrays starts without torch."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import kev_engine

ROOT = Path(__file__).parents[1]
LEVELS = (
    ("errors", "schema", "config"),
    ("text", "isolation", "native"),
    ("models", "cache", "adapters", "sampling"),
    ("attention",),
    ("runtime",),
    ("doctor",),
)
RANK = {package: level for level, packages in enumerate(LEVELS) for package in packages}
BASE = 0
FILES = sorted((ROOT / "kev_engine").rglob("*.py"))
ENTRIES = {ROOT / "kev_engine" / name for name in ("__init__.py", "__main__.py")}
"""They see everything."""


def imported(file: Path) -> set[str]:
    """The packages of kev_engine that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("kev_engine.")}
    return found


@pytest.mark.parametrize("file", sorted(set(FILES) - ENTRIES), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_package_imports_only_those_left_of_it(file):
    package = file.relative_to(ROOT / "kev_engine").parts[0].removesuffix(".py")
    allowed = {other for other, rank in RANK.items() if rank < RANK[package] or other == package}
    if RANK[package] == BASE:
        allowed |= set(LEVELS[BASE])
    assert imported(file) <= allowed


def test_every_package_has_its_level():
    packages = {folder.name for folder in (ROOT / "kev_engine").iterdir() if (folder / "__init__.py").exists()}
    assert packages <= RANK.keys()


@pytest.mark.parametrize("file", sorted((ROOT / "app").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_page_never_imports_torch(file):
    text = file.read_text()
    assert "import torch" not in text
    assert "from torch" not in text


def test_the_public_names():
    assert kev_engine.__all__ == [
        "Answer", "Audit", "Engine", "EngineConfig", "Finished", "InputError", "KevError", "Message", "PackedLayout",
        "PlanMade", "Prefilling", "Question", "Refused", "Run", "RunFinished", "RunStats", "SamplingParams",
        "SharedContext", "Step", "StepPlan", "TextDelta", "diagnose", "pack",
    ]
    assert all(getattr(kev_engine, name).__name__ == name for name in kev_engine.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        importlib.import_module("kev_engine").nothing  # noqa: B018


def test_diagnosing_plain_arrays_starts_without_torch():
    program = "import sys, kev_engine; kev_engine.diagnose({'lengths': [2, 1]}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_the_visibility_rule_is_written_in_one_file():
    """Who compares a key's position with a query's decides who may read whom; only the rule may."""
    rule = "key_position <= query_position"
    assert [file.name for file in FILES if rule in file.read_text()] == ["mask.py"]
