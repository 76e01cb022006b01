"""An event that has nothing to change says so: Gradio fails on a dictionary without any update."""

import ast
from pathlib import Path

import pytest

WIRING = sorted((Path(__file__).parents[2] / "app" / "wiring").glob("*.py"))


def empty_answers(source: str) -> list[int]:
    """The lines in which a function gives, or may give, a dictionary without an update."""
    given: list[ast.expr] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            given.append(node.value)
        elif isinstance(node, ast.Lambda):
            given.append(node.body)
    found = []
    while given:
        value = given.pop()
        if isinstance(value, ast.IfExp):
            given += [value.body, value.orelse]
        elif isinstance(value, ast.Dict) and not value.keys:
            found.append(value.lineno)
    return sorted(found)


@pytest.mark.parametrize("file", WIRING, ids=lambda file: file.stem)
def test_no_event_gives_an_empty_dictionary(file):
    assert empty_answers(file.read_text(encoding="utf-8")) == []


def test_an_empty_dictionary_is_seen_wherever_it_is_given():
    source = """
def a():
    return {}
def b():
    yield {}
def c(x):
    return {1: 2} if x else {}
d = lambda x: {}
def e():
    found = {}
    return {**found}
"""
    assert empty_answers(source) == [3, 5, 7, 8]
