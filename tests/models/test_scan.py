"""transformers, imported with one look through its sources for all starts: the same names."""

import json
import os
import subprocess
import sys

import pytest

from kev_engine.models.scan import _remembered

PROGRAM = """
import json, sys
if sys.argv[1] == "once":
    import kev_engine.models
from transformers.utils import import_utils
look, looks = import_utils.create_import_structure_from_path, []
import_utils.create_import_structure_from_path = lambda path: looks.append(str(path)) or look(path)
import transformers
from transformers.models import llama
print(json.dumps([sorted(dir(transformers)), sorted(dir(transformers.models)), sorted(dir(llama)), len(looks)]))
"""
FOUND = {frozenset({"torch", "vision"}): {"llama.modeling": {"Llama"}}, frozenset(): {"llama.config": {"Config"}}}


def imported(how, home):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True,
        env={**os.environ, "KEV_HOME": str(home)},
    )
    return json.loads(done.stdout)


def test_the_names_are_the_same_and_kept(tmp_path):
    *usual, looks = imported("usual", tmp_path)
    assert looks > 400
    assert not list(tmp_path.iterdir())
    assert imported("once", tmp_path)[:3] == usual
    *names, looks = imported("once", tmp_path)
    assert names == usual
    assert looks < 5


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder of models, and how often it was looked through."""
    monkeypatch.setenv("KEV_HOME", str(tmp_path / "home"))
    folder = tmp_path / "models"
    (folder / "llama").mkdir(parents=True)
    (folder / "__init__.py").touch()
    return folder, []


def finder(models):
    _, looks = models

    def find(path, prefix=None):
        looks.append(path)
        return FOUND

    return _remembered(find)


def test_the_package_and_its_models_share_one_look_of_one_process(models):
    folder, looks = models
    for _ in range(2):
        find = finder(models)
        assert find(folder / "__init__.py") == FOUND
        assert find(folder, prefix="models") == {
            needed: {f"models.{module}": names for module, names in modules.items()}
            for needed, modules in FOUND.items()
        }
    assert len(looks) == 1
    find(folder / "llama")
    assert looks[1:] == [folder / "llama"]


@pytest.mark.parametrize("spoil", [
    lambda folder, file: os.utime(folder / "llama", (1, 2**31)),
    lambda folder, file: file.write_text(file.read_text()[:-5]),
    lambda folder, file: file.write_text("[]"),
    lambda folder, file: file.write_text(file.read_text().replace('"found": [[', '"found": [[7, ')),
    lambda folder, file: file.unlink(),
])
def test_what_does_not_hold_or_cannot_be_read_is_found_anew(models, spoil):
    folder, looks = models
    finder(models)(folder)
    [file] = (folder.parent / "home").iterdir()
    spoil(folder, file)
    for _ in range(2):
        assert finder(models)(folder) == FOUND
    assert len(looks) == 2
    assert [file] == list((folder.parent / "home").iterdir())
