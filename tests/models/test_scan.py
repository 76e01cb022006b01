"""transformers, imported with one look through its sources: the same names, and the second look is spared."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
if sys.argv[1] == "once":
    import kev_engine.runtime.engine
import transformers
from transformers import AutoTokenizer
from transformers.models import llama
from transformers.utils import import_utils
info = getattr(import_utils.create_import_structure_from_path, "cache_info", None)
print(json.dumps([sorted(dir(transformers)), sorted(dir(transformers.models)), sorted(dir(llama)),
                  info().hits if info else 0]))
"""


def imported(how):
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_names_are_the_same_and_the_folders_are_read_once():
    *names, hits = imported("once")
    *usual, none = imported("twice")
    assert names == usual
    assert none == 0
    assert hits > 400
