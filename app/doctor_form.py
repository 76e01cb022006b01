"""What stands in the Doctor's form -> a batch description. A mistake is an InputError that the tab shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kev_engine import InputError
from kev_engine.doctor.batch import MASK_KEYS, READERS
from kev_engine.doctor.files import ARRAY_SUFFIXES, read_arrays
from kev_engine.errors import InvalidField

MOST_PUBLIC_CHARACTERS = 2_000_000
DIVIDER = "---"


class NothingToExamine(InputError):
    code = "doctor_nothing"


class FileNotUploaded(InputError):
    """The description names a file beside the uploaded ones; no other file of this machine is ever opened."""

    code = "doctor_file"


class NoDescription(InputError):
    code = "doctor_object"


class NotJson(InputError):
    code = "doctor_json"


class DescriptionTooLarge(InputError):
    code = "doctor_large"


class OnlyTheLoadedTokenizer(InputError):
    code = "doctor_public"


def parse(text: str, uploads: Sequence[str], is_public: bool) -> dict[str, Any]:
    """The description in the text field, together with the arrays of the uploaded files, by their names.

    A file of one array is taken for the key it is named after, else for the mask. What the text says counts more than
    what a file says. Raises InputError.
    """
    if is_public and len(text) > MOST_PUBLIC_CHARACTERS:
        raise DescriptionTooLarge("the description is too large", size=len(text), limit=MOST_PUBLIC_CHARACTERS)
    files = {Path(path).name: Path(path) for path in uploads}
    inner = [_object(name, path.read_text(encoding="utf-8-sig", errors="replace"))
             for name, path in files.items() if path.suffix == ".json"]
    inner.append(_object("JSON", text) if text.strip() else {})
    used: set[str] = set()
    for named in inner:
        named |= {key: _with_files(named[key], files, used) for key in MASK_KEYS if key in named}
    whole: dict[str, Any] = {}
    for name, path in files.items():
        if name not in used and path.suffix != ".json":
            whole |= _arrays(path)
    for named in inner:
        whole |= named
    if not whole:
        raise NothingToExamine("there is nothing to examine")
    return whole


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as trouble:
        raise NotJson(f"{name} is not JSON", name=name, line=trouble.lineno, column=trouble.colno,
                      reason=trouble.msg) from trouble
    except (RecursionError, ValueError) as trouble:
        raise NotJson(f"{name} is not JSON", name=name, line=1, column=1, reason=str(trouble)) from trouble
    if isinstance(value, dict) and isinstance(value.get("batch"), dict):
        value = value["batch"]
    if not isinstance(value, dict):
        raise NoDescription("a description is an object")
    return value


def _with_files(value: Any, files: Mapping[str, Path], used: set[str]) -> Any:
    """The value with each `{"file": name}` pointing to the upload of that name."""
    if isinstance(value, list):
        # A mask written out is a list as well, of numbers; only planes are objects.
        return [_with_files(entry, files, used) if isinstance(entry, dict) else entry for entry in value]
    if not isinstance(value, dict) or "file" not in value:
        return value
    name = value["file"]
    if not isinstance(name, str) or name not in files:
        raise FileNotUploaded("the file was not uploaded", name=name)
    used.add(name)
    return {**value, "file": str(files[name].absolute())}


def _arrays(path: Path) -> dict[str, Any]:
    if path.suffix not in ARRAY_SUFFIXES:
        raise InvalidField("file", path.name, f"its name must end in one of {', '.join(ARRAY_SUFFIXES)}, .json")
    arrays = read_arrays(path)
    if list(arrays) == ["attention_mask"] and (path.stem in READERS or path.stem in MASK_KEYS):
        return {path.stem: arrays["attention_mask"]}
    return arrays


def pieces(text: str) -> list[str]:
    """The pieces of a prompt, which a line of --- separates."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip() == DIVIDER:
            found.append([])
        else:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def intervals(text: str) -> list[tuple[int, int]] | None:
    """The recorded intervals; None where the field is empty."""
    if not text.strip():
        return None
    try:
        value = json.loads(text)
        found = [(start, end) for start, end in value]
    except (ValueError, TypeError) as trouble:
        raise InvalidField("recorded", text, "it must be a list such as [[0, 5], [5, 9]]") from trouble
    for start, end in found:
        if type(start) is not int or type(end) is not int or not 0 <= start <= end:
            raise InvalidField("recorded", [start, end], "each entry must be [start, end] with 0 <= start <= end")
    return found


def as_text(description: Mapping[str, Any]) -> str:
    """The description as JSON, a line a key, and a line a row of a matrix."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}".replace("], [", "],\n    [")
             if isinstance(value, list) else f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
             for key, value in description.items()]
    return "{\n" + ",\n".join(lines) + "\n}"
