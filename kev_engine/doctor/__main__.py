"""`python -m kev_engine.doctor FILE… [--json] [--picture out.png]`.

Exit status: 0 for ok, note and warning; 1 for error; 2 where a file cannot be used, with one line that says why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kev_engine.doctor.batch import Batch, read_batch
from kev_engine.doctor.files import ARRAY_SUFFIXES, read_arrays
from kev_engine.doctor.picture import as_text, save_png
from kev_engine.doctor.report import Report, diagnose
from kev_engine.errors import InvalidField, KevError, UnreadableFile


def read_file(path: Path) -> Batch:
    """The batch in a file: a JSON description, a case with a `batch` key, or arrays by their key names."""
    if path.suffix in ARRAY_SUFFIXES:
        description: Any = read_arrays(path)
    else:
        description = _read_json(path)
        if isinstance(description, dict) and isinstance(description.get("batch"), dict):
            description = description["batch"]
        if not isinstance(description, dict):
            raise UnreadableFile(str(path), "the file", "it must hold an object with the keys of a batch")
    return read_batch(description, path.parent)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as trouble:
        raise UnreadableFile(str(path), "the file", "it does not exist") from trouble
    except json.JSONDecodeError as trouble:
        where = f"line {trouble.lineno}, column {trouble.colno}"
        raise UnreadableFile(str(path), where, f"this is not JSON ({trouble.msg})") from trouble
    except (OSError, UnicodeDecodeError, RecursionError, ValueError) as trouble:
        reason = "its lists are nested too deeply" if isinstance(trouble, RecursionError) else str(trouble)
        raise UnreadableFile(str(path), "the file", f"it cannot be read ({reason})") from trouble


def as_lines(report: Report, name: str) -> str:
    """The report for people: verdict, picture, findings with their repair, assumptions."""
    lines = [f"{name}: {report.verdict}"]
    picture = as_text(report)
    if picture:
        lines += ["", picture]
    for finding in report.findings:
        lines += ["", f"[{finding.level}] {finding.code}: {finding.message}"]
        if finding.repair:
            lines.append(f"    repair: {finding.repair}")
    if report.assumed:
        lines += ["", *(f"assumed: {entry}" for entry in report.assumed)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kev_engine.doctor", description="What is wrong with this batch?")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE",
                        help="a batch as JSON, or arrays as .npy, .npz, .safetensors or .pt")
    parser.add_argument("--json", action="store_true", help="print one JSON object a file")
    parser.add_argument("--picture", type=Path, metavar="out.png", help="save the mask as a picture (one file only)")
    options = parser.parse_args(arguments)
    if options.picture is not None and len(options.files) > 1:
        parser.error("--picture takes one file")
    status = 0
    for path in options.files:
        try:
            report = diagnose(read_file(path))
            if options.picture is not None and not save_png(report, options.picture):
                raise InvalidField("--picture", str(options.picture), "this batch does not say who reads whom")
        except KevError as trouble:
            message = " ".join(str(trouble).split())
            name = "" if message.startswith(str(path)) else f"{path}: "
            print(f"{name}{message}", file=sys.stderr)
            status = 2
            continue
        if options.json:
            found = report.as_json() if len(options.files) == 1 else {"file": str(path)} | report.as_json()
            print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        else:
            print(as_lines(report, path.name))
        if status == 0 and report.verdict == "error":
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
