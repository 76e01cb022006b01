"""Every sentence with which the engine or the page refuses something is said in Chinese too: none can be forgotten."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import app
import kev_engine
from app.i18n import CATALOGUE, EN, ZH, placeholders, sentence, spoken
from app.i18n.ways import in_chinese
from kev_engine import InputError, KevError, errors
from kev_engine.cache.storage import KVShape
from kev_engine.runtime.budget import pick_backend
from kev_engine.sampling import sampler

ROOT = Path(__file__).parents[2]
COMMAND_LINE = {"kev_engine/__main__.py", "kev_engine/config.py", "kev_engine/runtime/questions_file.py",
                "kev_engine/doctor/__main__.py", "kev_engine/doctor/picture.py", "kev_engine/doctor/capture.py",
                "kev_engine/doctor/probe.py", "app/handlers/api.py"}
"""Files whose errors only a command line, a program or a caller of the API sees."""
SAID = {"InvalidField": (2,), "UnreadableFile": (1, 2), "NotEnoughSpace": (0, 3), "UnusableLogits": (1,),
        "ModelNotFound": (0,), "ModelUnreachable": (0,), "ModelIncomplete": (0,), "ModelUnsupported": (0,),
        "ModelError": (0,), "require_memory": (0,), "require_disk": (0,), "_unsupported": (1,)}
"""Which arguments of an error, or of a function that raises one, are words for people."""
RETURNED = {"kev_engine/models/support.py": r".*_refusal", "kev_engine/models/folder.py": "pickles_only",
            "kev_engine/attention/base.py": ".*", "kev_engine/attention/flash.py": "unsupported",
            "kev_engine/runtime/entry.py": "_difference"}
"""Functions that return such words."""
PASSED_ON = {
    "error.way_out", "draw.error", "refusal(config)", "reason", "what", "way_out", "spec", "where", "errors[-1]",
    "pickles_only(str(folder), pickled[0])", "pickles_only(where, pickles[0])",
    "str(error.facts['where'])", "str(error.facts['way_out']).replace(path, Path(path).name)",
}
"""Words that were made elsewhere, where they are looked at, or a library's."""
JOINED = "no backend can serve this model: {}."
"""Joined from a sentence of each backend; a test of its own looks at it."""


def templates(node: ast.expr, names: dict[str, list[ast.expr]]) -> list[str]:
    """The texts that an expression can be, with {} for what is only known when it runs."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return templates(node.body, names) + templates(node.orelse, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in templates(node.left, names) for right in templates(node.right, names)]
    if isinstance(node, ast.JoinedStr):
        found = [""]
        for part in node.values:
            inner = [part.value] if isinstance(part, ast.Constant) else ["{}"]
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                given = names.get(part.value.id, [])
                if given and all(isinstance(value, ast.JoinedStr | ast.IfExp) for value in given):
                    inner = [text for value in given for text in templates(value, names)]
            found = [text + more for text in found for more in inner]
        return found
    if isinstance(node, ast.Name) and node.id in names:
        return [text for value in names[node.id] for text in templates(value, {})]
    assert ast.unparse(node) in PASSED_ON, f"{ast.unparse(node)} hides what is said; write it where it is raised"
    return []


def said() -> Iterator[tuple[str, str]]:
    """Where something is said, and its template."""
    for path in sorted([*ROOT.glob("kev_engine/**/*.py"), *ROOT.glob("app/**/*.py")]):
        file, program = str(path.relative_to(ROOT)), path.read_text("utf-8")
        if file in COMMAND_LINE or not (file in RETURNED or any(f"{name}(" in program for name in SAID)):
            continue
        for function in ast.walk(ast.parse(program)):
            if not isinstance(function, ast.FunctionDef):
                continue
            names: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                found: list[ast.expr] = []
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "id", "")
                    found = [node.args[at] for at in SAID.get(name, ()) if at < len(node.args)]
                    if file == "kev_engine/models/probe.py" and name == "ValueError":
                        found = node.args
                elif isinstance(node, ast.Return) and re.fullmatch(RETURNED.get(file, "-"), function.name):
                    found = [node.value] if isinstance(node.value, ast.Constant | ast.JoinedStr) else []
                for value in found:
                    # One word is a key of a file, as in `questions[2]`.
                    for text in templates(value, names):
                        if " " in text and text != JOINED:
                            yield f"{file}:{node.lineno}", text


def test_every_sentence_has_its_chinese():
    wrong, count = [], 0
    for where, template in said():
        count += 1
        facts = [f"⟨{index}⟩" for index in range(template.count("{}"))]
        text = template
        for fact in facts:
            text = text.replace("{}", fact, 1)
        chinese = in_chinese(text)
        rest = re.sub(r"`[^`]*`|⟨\d+⟩", "", chinese)
        if (not re.search("[一-鿿]", chinese) or re.search("[a-z]{2,} [a-z]{2,} [a-z]{2,}", rest)
                or any(fact not in chinese for fact in facts)):
            wrong.append(f"{where}: {text} -> {chinese}")
    assert not wrong, "\n".join(wrong)
    assert count > 250


def kinds() -> list[type[KevError]]:
    """Every class of error that the engine or the page has, without those that only gather others."""
    for package in (app, kev_engine):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, todo = [], [KevError]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        found.append(kind)
    return [kind for kind in found if kind not in (KevError, InputError, errors.ModelError)]


def test_every_kind_of_error_has_words_of_the_catalogue_or_of_its_sentences():
    """An error has a key, a key for each of its reasons, or is one whose sentences the test above has seen."""
    whole = {errors.ModelNotFound, errors.ModelUnreachable, errors.ModelIncomplete, errors.ModelUnsupported}
    missing = [kind.__name__ for kind in kinds() if kind not in whole and not any(
        key == f"error.{kind.code}" or key.startswith(f"error.{kind.code}.") for key in CATALOGUE)]
    assert missing == []


@pytest.mark.parametrize("reason", ["mla", "state", "disagrees", "encoder_decoder", "no_decoder"])
def test_a_reason_of_the_planner_has_its_key(reason):
    keys = placeholders(CATALOGUE[f"error.footprint_refused.{reason}"][0])
    error = errors.FootprintRefused(reason, "it is so", **dict.fromkeys(keys, "x"))
    assert sentence(error, EN) != sentence(error, ZH)


def test_what_no_backend_can_do_and_no_token_for_a_question_are_said():
    shape = KVShape(1, 1, 8, torch.float32)
    with pytest.raises(errors.ModelUnsupported) as caught:
        pick_backend(None, frozenset({"sorcery"}), torch.device("cpu"), shape)
    told = sentence(caught.value, ZH)
    assert "没有后端" in told
    assert "does not" not in told
    assert " needs " not in told
    for reason in (sampler.NOT_FINITE, sampler.NOTHING_LEFT):
        assert reason not in sentence(errors.UnusableLogits("A", reason), ZH)
        assert reason not in spoken(str(errors.UnusableLogits("A", reason)), ZH)


def test_what_a_kept_run_says_of_a_question_is_said():
    for error in (errors.UnknownAdapter("pirat", ["pirate"], "A"), errors.UnknownAdapter("zzz", [], "A"),
                  errors.InvalidField("temperature", -1, "it must be a number", "A"),
                  errors.PromptTooLong(9000, 512, "kv", "A")):
        told = spoken(str(error), ZH)
        assert "引擎报告" not in told
        assert not re.search("[a-z]{2,} [a-z]{2,} [a-z]{2,}", told), told
        assert spoken(str(error), EN) == str(error)


def test_what_has_no_chinese_is_quoted():
    assert spoken("something new happened.", ZH) == "引擎报告：something new happened."
