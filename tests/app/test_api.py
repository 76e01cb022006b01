"""The API on the real server, called as other programs call it: gradio_client, curl, the copied code, an MCP client."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from app import build_app, page_options
from app.board import CardValues, board
from app.forms import PUBLIC
from app.handlers.api import ApiHandlers
from app.live_engine import LiveEngine
from app.run_record import record
from app.snippets import ORIGIN, curl, python
from app.wiring.api import ENDPOINTS
from kev_engine import Question
from kev_engine.errors import InvalidField, TooManyQuestions

pytestmark = [
    # Gradio, its client and its MCP server call libraries in ways that these now deprecate, and leave sockets open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

QUESTIONS = [
    {"id": "A", "question": "Who?", "context": "They.", "temperature": 0, "max_new_tokens": 8},
    {"id": "B", "question": "Where?", "shared": "lore", "temperature": 1, "seed": 7, "max_new_tokens": 5, "n": 2},
]
SHARED = {"lore": "A bridge of stone."}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def url(tiny_engine) -> Iterator[str]:
    demo = build_app(tiny_engine, is_public=False)
    with pytest.MonkeyPatch.context() as patch:
        # As on a machine so busy that Gradio's own look at the page gets no answer in time: it starts all the same.
        patch.setattr("gradio.networking.url_ok", lambda _: False)
        _, address, _ = demo.launch(server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True,
                                    quiet=True, mcp_server=True, **page_options())
    yield address.rstrip("/")
    demo.close()
    with warnings.catch_warnings():
        # What the server and its clients leave open is told when it is collected: here, and not in another test.
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(scope="module")
def client(url: str) -> Client:
    return Client(url, verbose=False)


def test_four_endpoints_are_open_and_documented_and_nothing_else(client):
    api = client.view_api(return_format="dict", print_info=False)
    assert set(api["named_endpoints"]) == {f"/{name}" for name in ENDPOINTS}
    assert api["unnamed_endpoints"] == {}
    for name, endpoint in api["named_endpoints"].items():
        assert endpoint["description"], name
        for parameter in endpoint["parameters"]:
            assert parameter["parameter_name"]
            assert parameter["python_type"]["type"] != "Any"


def test_what_is_private_cannot_be_called_by_clients(client):
    private = [event for event in client.config["dependencies"] if event["api_name"] not in ENDPOINTS]
    assert len(private) > 20
    assert {event["api_visibility"] for event in private} == {"private"}
    for name in sorted({event["api_name"] for event in private if event["api_name"]})[:5]:
        with pytest.raises(ValueError, match="Cannot find a function"):
            client.predict(api_name=f"/{name}")


def test_run_answers_as_the_engine_does(client, tiny_engine):
    got = client.predict(QUESTIONS, SHARED, api_name="/run")
    assert [(answer["id"], answer["sample"]) for answer in got["answers"]] == [("A", 0), ("B", 0), ("B", 1)]
    alone = tiny_engine.ask([Question.from_json(QUESTIONS[0])])
    assert got["answers"][0]["token_ids"] == list(alone.answers[0].token_ids)
    assert got["answers"][1]["sampling"]["seed"] == 7
    assert got["run"]["model"] == tiny_engine.info.model
    assert got["run"]["forwards"] > 0


def test_a_mistake_of_one_question_leaves_the_others(client):
    got = client.predict([QUESTIONS[0], {"id": "C", "question": "?", "temperature": "hot"}], None, api_name="/run")
    assert [answer["finish_reason"] == "error" for answer in got["answers"]] == [False, True]
    assert "temperature is 'hot'" in got["answers"][1]["error"]


@pytest.mark.parametrize(("name", "arguments", "words"), [
    ("run", [[], None], "at least one question"), ("run", [[{"question": "?"}], None], "needs a text id"),
    ("run", ["what", None], "must be a list"), ("run", [[{"id": "A", "question": "?", "colour": 1}], None], "colour"),
    ("run", [[QUESTIONS[0], QUESTIONS[0]], None], "appears twice"), ("run", [QUESTIONS, {"lore": 5}], "shared.lore"),
    ("audit", [[{"id": "A", "question": " "}], None, None], "must hold some text"),
    ("audit", [QUESTIONS[:1], None, "no-such-fault"], "no-such-fault"),
    ("analyze_mask", [{"attention_msk": [[1]]}], "attention_msk"),
    ("analyze_mask", [{"attention_mask": {"file": "/etc/passwd"}}], "no file of this machine is read"),
    ("analyze_mask", [{"mask_planes": [1, {"file": "/etc/passwd"}]}], "no file of this machine is read"),
    ("tokenize", ["what", None], "must be a JSON object"),
    ("tokenize", [{"question": ""}, None], "must hold some text"),
    ("tokenize", [{"question": "?", "shared": "gone"}, None], "no shared context of that name"),
    ("tokenize", [{"prompt_token_ids": [999_999]}, None], "the model knows the ids"),
])
def test_bad_input_gives_the_engines_sentence(client, name, arguments, words):
    with pytest.raises(AppError, match=words):
        client.predict(*arguments, api_name=f"/{name}")


def test_audit_proves_and_a_fault_fails(client):
    proven = client.predict([QUESTIONS[0], {**QUESTIONS[0], "id": "C"}], None, None, api_name="/audit")
    assert proven["isolated"] is True
    broken = client.predict([QUESTIONS[0], {**QUESTIONS[0], "id": "C"}], None, "ones-2d", api_name="/audit")
    assert (broken["isolated"], broken["fault"]) == (False, "ones-2d")


def test_analyze_mask_names_the_leak(client):
    mask = [[int(key <= query) for key in range(5)] for query in range(5)]
    report = client.predict({"lengths": [3, 2], "attention_mask": mask, "consumer": "sdpa", "mask_dtype": "bool"},
                            api_name="/analyze_mask")
    assert report["verdict"] == "error"
    assert "CROSS_SEGMENT_LEAK" in [finding["code"] for finding in report["findings"]]


def test_tokenize_shows_what_the_model_reads(client, tiny_engine):
    asked = {"question": "Where?", "context": "Here.", "shared": "lore"}
    got = client.predict(asked, SHARED, api_name="/tokenize")
    ran = client.predict([{**asked, "id": "A", "max_new_tokens": 1}], SHARED, api_name="/run")
    assert len(got["token_ids"]) == ran["answers"][0]["prompt_tokens"]
    assert [token["id"] for token in got["tokens"]] == got["token_ids"]
    parts = {part: "".join(token["text"] for token in got["tokens"] if token["part"] == part)
             for part in ("shared", "context", "question")}
    assert "A bridge of stone." in parts["shared"]
    assert "Here." in parts["context"]
    assert parts["question"].strip() == "Where?"
    assert None in [token["part"] for token in got["tokens"]]


def test_the_limits_of_a_public_page_hold_for_calls(tiny_engine):
    handlers = ApiHandlers(LiveEngine(tiny_engine), PUBLIC)
    with pytest.raises(TooManyQuestions):
        handlers.run([{"id": str(number), "question": "?"} for number in range(9)])
    long, wide = {"id": "L", "question": "?", "context": "x" * 20_001}, {"id": "W", "question": "?", "n": 33}
    many = {"id": "M", "question": "?", "max_new_tokens": 257}
    chat = {"id": "C", "messages": [{"role": "user", "content": "x" * 20_001}]}
    right = {"id": "R", "question": "?", "max_new_tokens": 2}
    got = handlers.run([long, many, chat, right, wide])
    assert [answer["finish_reason"] == "error" for answer in got["answers"]] == [True, True, True, False, True]
    assert "at most 256" in got["answers"][1]["error"]
    with pytest.raises(InvalidField, match="ids"):
        handlers.audit([{"id": "P", "prompt_token_ids": [1] * 20_001}])
    with pytest.raises(Exception, match="shared has"):
        handlers.tokenize({"question": "?", "shared": "s"}, {"s": "x" * 20_001})


@pytest.fixture(scope="module")
def kept(client, tiny_engine):
    """A run of the page, kept as the history keeps it."""
    from app.forms import parse_all
    from app.handlers.run import RunHandlers
    from app.session import Session

    asked = board((CardValues("It's \"here\" & $there?", temperature="1", max_new_tokens="6"),))
    session = Session("preset.secrets")
    list(RunHandlers(tiny_engine).run(session, asked))
    return record(asked, parse_all(asked, ()), session.view, tiny_engine.info)


def test_the_copied_python_gives_the_same_answer(kept, url):
    ran = subprocess.run([sys.executable, "-c", python(kept).replace(ORIGIN, url)], capture_output=True, text=True,
                         timeout=120, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip("\n").endswith("A " + kept.answers[0]["text"].rstrip("\n"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_copied_curl_gives_the_same_answer(kept, url):
    ran = subprocess.run(["sh", "-c", curl(kept).replace(ORIGIN, url)], capture_output=True, text=True, timeout=120)
    line = next(line for line in ran.stdout.splitlines() if line.startswith("data: ["))
    assert json.loads(line.removeprefix("data: "))[0]["answers"][0]["token_ids"] == kept.answers[0]["token_ids"]


def test_an_mcp_client_finds_the_tools_and_uses_them(url):
    mcp = pytest.importorskip("mcp")
    from mcp.client.streamable_http import streamablehttp_client

    async def talk():
        async with streamablehttp_client(f"{url}/gradio_api/mcp/") as (read, write, _), \
                mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            ran = await session.call_tool("run", {"questions": [QUESTIONS[0]]})
            wrong = await session.call_tool("run", {"questions": [{"id": "A"}]})
            looked = await session.call_tool("analyze_mask", {"batch": {"lengths": [2, 1]}})
            refused = await session.call_tool("run", {"questions": []})
            return tools, ran, wrong, looked, refused

    tools, ran, wrong, looked, refused = asyncio.run(talk())
    assert {tool.name for tool in tools} == set(ENDPOINTS)
    assert all(tool.description for tool in tools)
    run = next(tool for tool in tools if tool.name == "run")
    assert "question" in run.inputSchema["properties"]["questions"]["description"]
    # Gradio's MCP server writes a result as Python does.
    assert ast.literal_eval(ran.content[0].text)["answers"][0]["id"] == "A"
    assert "give exactly one of question" in ast.literal_eval(wrong.content[0].text)["answers"][0]["error"]
    assert ast.literal_eval(looked.content[0].text)["verdict"] == "ok"
    assert "at least one question" in refused.content[0].text

