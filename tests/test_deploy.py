"""Files that other places read, and documents that people follow: what they name is there, and their commands work."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

from app.build import public_by_environment
from kev_engine.config import EngineConfig

ROOT = Path(__file__).parents[1]
README, CHINESE = (ROOT / "README.md").read_text("utf-8"), (ROOT / "README.zh-CN.md").read_text("utf-8")
DOCS = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
OURS = ("deploy.md", "memory.md", "history.md", "api.md")


def front_matter() -> dict[str, str]:
    lines = README.split("---\n")[1].splitlines()
    return {key.strip(): value.strip().strip('"') for key, _, value in (line.partition(":") for line in lines)}


def body(text: str) -> str:
    """The README without its front matter."""
    return text.split("---\n", 2)[2] if text.startswith("---\n") else text


def blocks(text: str, kind: str = "") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.M | re.S)


def commands(text: str) -> list[str]:
    """Every line of the unmarked code blocks, without its comment."""
    return [line.split("#")[0].strip() for block in blocks(text) for line in block.splitlines() if line.strip()]


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def test_both_readmes_have_the_same_headings_commands_rows_and_names():
    english, chinese = body(README), CHINESE
    assert [line.count("#") for line in re.findall(r"^#+", english, flags=re.M)] == [
        line.count("#") for line in re.findall(r"^#+", chinese, flags=re.M)]
    assert commands(english) == commands(chinese)
    for mark in (r"^\|", r"^- ", r"^!\["):
        assert len(re.findall(mark, english, flags=re.M)) == len(re.findall(mark, chinese, flags=re.M)), mark
    assert set(code_spans(english)) <= set(code_spans(chinese))
    assert re.findall(r"!\[.*?\]\((.*?)\)", english) == re.findall(r"!\[.*?\]\((.*?)\)", chinese)


def test_every_heading_of_the_chinese_readme_is_chinese():
    for heading in re.findall(r"^#+ (.*)$", CHINESE, flags=re.M):
        assert re.search(r"[\u4e00-\u9fff]", heading), heading


@pytest.mark.parametrize("text", [README, CHINESE, *(DOCS[name] for name in OURS)],
                         ids=["README", "README.zh-CN", *OURS])
def test_files_that_are_named_are_there(text):
    for span in code_spans(text):
        if re.fullmatch(r"(app|kev_engine|docs|assets|tests|benchmarks)/[\w./-]*", span):
            assert (ROOT / span).exists(), span
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_front_matter_is_what_a_space_and_a_studio_read():
    found = front_matter()
    assert (found["sdk"], found["license"]) == ("gradio", "apache-2.0")
    assert (ROOT / found["app_file"]).exists()
    assert (ROOT / found["entry_file"]).exists()
    requirements = (ROOT / "requirements.txt").read_text()
    assert f"gradio=={found['sdk_version'].rsplit('.', 1)[0]}." in requirements
    assert re.search(rf'requires-python = ">={found["python_version"]}"', (ROOT / "pyproject.toml").read_text())
    assert len(found["short_description"]) <= 60


def test_the_studio_file_names_the_port_of_the_image():
    studio = json.loads((ROOT / "ms_deploy.json").read_text())
    docker = (ROOT / "Dockerfile").read_text()
    assert studio["sdk_type"] == "docker"
    assert f"EXPOSE {studio['port']}\n" in docker
    assert f"GRADIO_SERVER_PORT={studio['port']}\n" in docker


def docker_steps() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def test_the_image_has_all_that_the_program_imports_and_nothing_runs_as_root():
    steps = docker_steps()
    assert {name for name, _ in steps} <= {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE",
                                          "HEALTHCHECK", "CMD"}
    copied = {source for name, rest in steps if name == "COPY" for source in rest.split()[:-1]}
    for source in copied:
        assert (ROOT / source).exists(), source
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} - {"tests", "benchmarks"}
    assert packages | {"app.py", "assets", "requirements.txt"} <= copied
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert copied == allowed
    names = [name for name, _ in steps]
    assert names.index("USER") < names.index("CMD")
    assert json.loads(dict(steps)["CMD"]) == ["python", "app.py"]
    assert f"FROM python:{front_matter()['python_version']}-slim" in (ROOT / "Dockerfile").read_text()


def test_the_python_in_the_image_file_is_python_that_imports_what_is_there():
    programs = [words[words.index("-c") + 1] for name, rest in docker_steps() if name in ("RUN", "HEALTHCHECK")
                for words in [shlex.split(rest)] if "-c" in words]
    assert len(programs) == 2
    for program in programs:
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.ImportFrom):
                module = __import__(node.module, fromlist=["*"])
                assert all(hasattr(module, alias.name) for alias in node.names)


def test_every_variable_that_is_read_is_documented_and_every_documented_one_is_read():
    documented = set(re.findall(r"KEV_[A-Z_]+", DOCS["deploy.md"].split("## This machine")[0]))
    read = set(re.findall(r'"(KEV_[A-Z_]+)"', (ROOT / "kev_engine" / "config.py").read_text()))
    read |= set(re.findall(r'"(KEV_[A-Z_]+)"', (ROOT / "app" / "build.py").read_text()))
    assert documented == read
    for line in ("KEV_HUB=modelscope", "KEV_MODEL=Qwen/Qwen3-0.6B"):
        assert line in DOCS["deploy.md"]
    config = EngineConfig.from_env({"KEV_HUB": "modelscope", "KEV_MODEL": "Qwen/Qwen3-0.6B"})
    assert (config.hub, config.model) == ("modelscope", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize(("env", "is_public"), [
    ({}, False), ({"SPACE_ID": "a/b"}, True), ({"MODELSCOPE_ENVIRONMENT": "studio"}, True),
    ({"MODELSCOPE_ENVIRONMENT": "notebook"}, False), ({"KEV_PUBLIC": "1"}, True),
    ({"KEV_PUBLIC": "0", "SPACE_ID": "a/b"}, False), ({"KEV_PUBLIC": ""}, False),
])
def test_where_strangers_use_the_page_it_is_public(env, is_public):
    assert public_by_environment(env) is is_public


def options_of(program: str) -> set[str]:
    """The long options that a program's argument parser is given."""
    return set(re.findall(r'"(--[a-z-]+)"', (ROOT / program).read_text()))


@pytest.mark.parametrize("name", ["README.md", *OURS])
def test_options_in_shown_commands_exist(name):
    text = README if name == "README.md" else DOCS[name]
    programs = {"app.py": "app.py", "kev_engine": "kev_engine/__main__.py",
                "kev_engine.doctor": "kev_engine/doctor/__main__.py"}
    for block in [*blocks(text, "bash"), *blocks(text)]:
        for line in block.splitlines():
            words = line.split("#")[0].split()
            for word, program in programs.items():
                if word in words:
                    shown = {item for item in words[words.index(word):] if item.startswith("--")}
                    assert shown <= options_of(program), line


def test_the_python_in_the_planners_page_prints_what_it_says(capsys):
    program = blocks(DOCS["memory.md"], "python")[0]
    exec(program, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line.split("#")[1].strip() for line in program.splitlines() if "#" in line]
