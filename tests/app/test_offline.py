"""No request leaves the machine: the real server under a guard that notes every connection and every name looked up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gradio_client import Client

from tests.app.test_api import free_port
from tests.models.tiny import tiny_folder

ROOT = Path(__file__).parents[2]
GUARD = """
import json, os, runpy, sys

notes = open(sys.argv.pop(1), "a", buffering=1)
INSIDE = ("127.", "localhost", "::1", "0.0.0.0")

def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        target = arguments[1]
        host = target[0] if isinstance(target, tuple) else "unix"
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else str(host)
    inside = host == "unix" or host in ("", "None") or host.startswith(INSIDE)
    notes.write(json.dumps([event, host, inside]) + "\\n")
    if not inside:
        raise OSError(f"{event} to {host}: this machine is offline")

sys.addaudithook(hook)
del sys.argv[0]
sys.path.insert(0, os.getcwd())
runpy.run_path(sys.argv[0], run_name="__main__")
"""
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_whole_session_asks_nothing_of_another_machine(tmp_path):
    folder = tiny_folder(tmp_path / "tiny")
    notes, port = tmp_path / "notes", free_port()
    (tmp_path / "guard.py").write_text(GUARD)
    command = [sys.executable, str(tmp_path / "guard.py"), str(notes), "app.py", "--model", str(folder),
               "--threads", "1", "--kv-budget", str(2**22), "--port", str(port), "--mcp"]
    env = {**os.environ, "KEV_HOME": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "hf")}
    server = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        client = connect(f"http://127.0.0.1:{port}", server)
        got = client.predict([{"id": "A", "question": "Who?", "max_new_tokens": 4}], None, api_name="/run")
        assert got["answers"][0]["token_ids"]
        assert client.predict({"lengths": [2, 1]}, api_name="/analyze_mask")["verdict"] == "ok"
        assert client.predict({"question": "Who?"}, None, api_name="/tokenize")["token_ids"]
    finally:
        server.terminate()
        server.wait(30)
    seen = [json.loads(line) for line in notes.read_text().splitlines()]
    assert seen, "the guard was not in place"
    assert [entry for entry in seen if not entry[2]] == []


def connect(url: str, server: subprocess.Popen[str]) -> Client:
    for _ in range(200):
        if server.poll() is not None:
            raise AssertionError(server.stdout.read())
        try:
            return Client(url, verbose=False)
        except Exception:
            time.sleep(0.5)
    raise AssertionError("the server did not come up")


def test_the_guard_itself_notices_a_request(tmp_path):
    (tmp_path / "guard.py").write_text(GUARD)
    (tmp_path / "ask.py").write_text("import urllib.request\nurllib.request.urlopen('http://example.invalid/')\n")
    command = [sys.executable, str(tmp_path / "guard.py"), str(tmp_path / "notes"), str(tmp_path / "ask.py")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode != 0
    assert "example.invalid" in (tmp_path / "notes").read_text()
