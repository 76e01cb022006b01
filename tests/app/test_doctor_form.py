"""The Doctor's form: text and uploads become one description; no file but the uploaded ones is ever opened."""

from __future__ import annotations

import json

import numpy as np
import pytest

from app.doctor_form import (
    MOST_PUBLIC_CHARACTERS,
    DescriptionTooLarge,
    FileNotUploaded,
    NoDescription,
    NothingToExamine,
    NotJson,
    as_text,
    intervals,
    parse,
    pieces,
)
from app.doctor_presets import EXAMPLES
from kev_engine.doctor import diagnose
from kev_engine.errors import InputError, InvalidField

MASK = np.tril(np.ones((3, 3), dtype=bool))


def test_text_and_arrays_are_one_description(tmp_path):
    np.save(tmp_path / "mask.npy", MASK)
    np.save(tmp_path / "position_ids.npy", np.arange(3))
    np.savez(tmp_path / "more.npz", labels=np.array([1, 2, 3]))
    uploads = [str(tmp_path / name) for name in ("mask.npy", "position_ids.npy", "more.npz")]
    found = parse('{"lengths": [3]}', uploads, is_public=True)
    assert set(found) == {"lengths", "attention_mask", "position_ids", "labels"}
    assert np.array_equal(found["attention_mask"], MASK)
    assert parse('{"attention_mask": [[1]]}', uploads[:1], False) == {"attention_mask": [[1]]}


@pytest.mark.parametrize("named_in", ["text", "upload"])
def test_a_file_that_is_named_is_the_upload_of_that_name(tmp_path, named_in):
    np.save(tmp_path / "mine.npy", MASK)
    batch = {"lengths": [3], "attention_mask": {"file": "mine.npy"}, "consumer": "sdpa"}
    text = json.dumps({"id": "mine", "batch": batch})
    (tmp_path / "case.json").write_text(text)
    uploads = [str(tmp_path / "mine.npy")] + [str(tmp_path / "case.json")] * (named_in == "upload")
    assert diagnose(parse(text if named_in == "text" else "", uploads, False)).verdict == "ok"


@pytest.mark.parametrize("name", ["other.npy", "../other.npy", "/etc/passwd", 3, None])
def test_no_file_of_this_machine_is_opened_by_name(tmp_path, name):
    np.save(tmp_path / "other.npy", MASK)
    for key, value in (("attention_mask", {"file": name}), ("mask_planes", [{"file": name}])):
        with pytest.raises(FileNotUploaded):
            parse(json.dumps({key: value}), [], False)


@pytest.mark.parametrize(("text", "error"), [
    ("", NothingToExamine), ("  \n", NothingToExamine), ("{}", NothingToExamine), ("[1]", NoDescription),
    ("{'a': 1}", NotJson), ("[" * 100_000, NotJson), ('{"a": 1', NotJson), ("\ud800", NotJson),
])
def test_what_is_no_description_is_said(text, error):
    with pytest.raises(error):
        parse(text, [], False)


def test_other_files_and_huge_texts_are_refused(tmp_path):
    (tmp_path / "a.exe").write_bytes(b"x")
    (tmp_path / "a.npy").write_bytes(b"x")
    for name in ("a.exe", "a.npy"):
        with pytest.raises(InputError):
            parse("", [str(tmp_path / name)], False)
    with pytest.raises(DescriptionTooLarge):
        parse(" " * MOST_PUBLIC_CHARACTERS + "{}", [], True)


def test_pieces_and_intervals():
    assert pieces("one\ntwo\n---\n three \n --- \nfour") == ["one\ntwo", " three ", "four"]
    assert intervals(" ") is None
    assert intervals("[[0, 2], [2, 5]]") == [(0, 2), (2, 5)]
    for wrong in ("x", "[0, 2]", "[[0]]", "[[2, 1]]", "[[0.5, 1]]", "[[true, 2]]", "[[-1, 2]]", "3", "{}x"):
        with pytest.raises(InvalidField):
            intervals(wrong)


@pytest.mark.parametrize("key", EXAMPLES)
def test_every_example_goes_through_the_form_unchanged(key):
    assert parse(as_text(EXAMPLES[key]), [], True) == json.loads(json.dumps(EXAMPLES[key]))


@pytest.mark.parametrize(("key", "codes"), [
    ("right", ()), ("shared", ()), ("ones", ("BOUNDARY_CONFLICT", "CROSS_SEGMENT_LEAK")),
    ("tutorial", ("MASK_SHAPE", "MASK_VALUES_AS_BIAS", "CROSS_SEGMENT_LEAK", "LEAK_FUTURE", "POS_NOT_RESET")),
    ("inverted", ("MASK_INVERTED",)), ("bias", ("MASK_VALUES_AS_BIAS",)), ("future", ("LEAK_FUTURE",)),
    ("one_cell", ("CROSS_SEGMENT_LEAK",)), ("no_reset", ("POS_NOT_RESET",)), ("shifted", ("CROSS_SEGMENT_LEAK",)),
    ("borders", ("CROSS_SEGMENT_LEAK", "POS_NOT_RESET")), ("cu", ("CU_NO_LEADING_ZERO",)), ("pads", ("POS_LEFT_PAD",)),
    ("window", ("WINDOW_OFF_BY_ONE",)), ("labels", ("LABEL_CROSSES_BOUNDARY",)), ("split", ("SPLIT_CHARACTER",)),
])
def test_every_example_shows_its_fault(key, codes):
    found = diagnose(EXAMPLES[f"doctor.example.{key}"]).codes
    assert set(codes) <= set(found)
    assert (found == ()) == (codes == ())
