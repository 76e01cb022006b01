"""A hub on this machine: enough of the Hugging Face and ModelScope protocols for their clients, and its failures."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class LocalHub:
    """What the server serves and has seen. `failure` is None, "down" (status 503), "gated" or "cut" (half a file).

    `hold`: the second half of weights is sent once it is set, or after half a minute. `resumed`: the files of which
    only the rest was asked for.
    """

    endpoint: str
    repositories: Mapping[str, Path]
    failure: str | None = None
    requests: list[str] = field(default_factory=list)
    hold: threading.Event | None = None
    resumed: list[str] = field(default_factory=list)

    def sent(self, name: str) -> int:
        """How often the content of a file of that name was asked for."""
        return sum(1 for line in self.requests if line.startswith("GET") and line.endswith(name))


def use_hub(patch: pytest.MonkeyPatch, hub: LocalHub, place: Path) -> None:
    """Both hubs' clients ask this server from now on, in small pieces, and keep what they get below `place`."""
    patch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
    patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
                  hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(place / "huggingface"))
    patch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 4096)
    patch.setattr("modelscope_hub._download.DOWNLOAD_CHUNK_SIZE", 4096)
    for variable, value in (("ENDPOINT", hub.endpoint), ("CACHE", place / "cache"), ("HOME", place / "modelscope")):
        patch.setenv(f"MODELSCOPE_{variable}", str(value))


@contextmanager
def local_hub(repositories: Mapping[str, Path]) -> Iterator[LocalHub]:
    """Serves folders under their `owner/name` on 127.0.0.1 for the block."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = LocalHub(f"http://127.0.0.1:{server.server_port}", repositories)
    Handler.hub = hub
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        # A client that gives up resets the connection.
        with suppress(ConnectionError):
            super().handle()

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlparse(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = [part for part in url.path.split("/") if part]
        asked = f"/{query['FilePath']}" if "FilePath" in query else ""
        self.hub.requests.append(f"{self.command} {url.path}{asked}")
        if self.hub.failure == "down":
            return self._json({"error": "maintenance"}, 503)
        if parts[:3] == ["api", "v1", "models"]:
            return self._modelscope(parts[3:], query)
        return self._huggingface(parts)

    def _huggingface(self, parts: list[str]) -> None:
        at = parts[2:] if parts[:2] == ["api", "models"] else parts
        folder = self.hub.repositories.get("/".join(at[:2]))
        if folder is None:
            return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if self.hub.failure == "gated":
            return self._json({"error": "gated"}, 403, {"X-Error-Code": "GatedRepo"})
        rest = at[2:]
        if len(rest) > 1 and rest[0] in ("revision", "tree", "resolve") and rest[1] not in ("main", COMMIT):
            return self._json({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
        if rest[:1] == ["resolve"]:
            # As the real one does for weights, it offers Xet, which this one does not speak.
            return self._file(folder / "/".join(rest[2:]), {
                "X-Repo-Commit": COMMIT, "X-Xet-Hash": "0" * 64,
                "Link": f'<{self.hub.endpoint}/xet-read-token>; rel="xet-auth"'})
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if rest[:1] == ["tree"]:
            return self._json([
                {"type": "file", "path": str(path.relative_to(folder)), "size": path.stat().st_size, "oid": _sha1(path)}
                for path in files
            ])
        siblings = [{"rfilename": str(path.relative_to(folder)), "size": path.stat().st_size} for path in files]
        name = "/".join(at[:2])
        return self._json({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "private": False,
                           "tags": [], "downloads": 0, "likes": 0, "gated": False, "disabled": False})

    def _modelscope(self, at: list[str], query: dict[str, str]) -> None:
        folder = self.hub.repositories.get("/".join(at[:2]))
        if folder is None or query.get("Revision", "master") != "master":
            return self._json({"Code": 10010205001, "Message": "not found", "Success": False}, 404)
        if at[2:] == ["repo", "files"]:
            files = [
                {"Path": str(path.relative_to(folder)), "Name": path.name, "Size": path.stat().st_size, "Type": "blob",
                 "Sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
                for path in sorted(folder.rglob("*")) if path.is_file()
            ]
            return self._json({"Code": 200, "Data": {"Files": files}, "Success": True})
        if at[2:] == ["repo"]:
            return self._file(folder / query["FilePath"], {})
        return self._json({"Code": 200, "Data": {"Path": "/".join(at)}, "Success": True})

    def _file(self, path: Path, headers: dict[str, str]) -> None:
        if not path.is_file():
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound", **headers})
            return
        content = path.read_bytes()
        start = 0
        span = self.headers.get("Range", "")
        if span.startswith("bytes="):
            start = int(span.removeprefix("bytes=").split("-")[0])
        body = content[start:]
        self.send_response(206 if start else 200)
        for name, value in {**headers, "ETag": f'"{_sha1(path)}"', "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        if start:
            self.hub.resumed.append(path.name)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.hub.failure == "cut" and path.suffix == ".safetensors":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        half = len(body) // 2 if self.hub.hold is not None and path.suffix == ".safetensors" else 0
        # Whoever gives up while he waits hangs up.
        with suppress(ConnectionError):
            if half and self.hub.hold is not None:
                self.wfile.write(body[:half])
                self.hub.hold.wait(30)
            self.wfile.write(body[half:])

    def _json(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _sha1(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
