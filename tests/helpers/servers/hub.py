"""A local HTTP server that answers the requests of the Hugging Face clients from folders, and clients that ask it."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import datasets
import pytest
from huggingface_hub import close_session, constants, hf_api
from transformers.utils import hub as transformers_hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Its contents by kind (``models`` or ``datasets``) and name, and the requests that it received."""

    repositories: dict[str, dict[str, Path]]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    keeps: Path | None = None
    """Folder for repos created on it; None makes it read-only."""
    tokens: list[str] = field(default_factory=list)
    """Access tokens received with writes."""

    def make(self, name: str) -> None:
        assert self.keeps is not None
        folder = self.keeps / name
        folder.mkdir(parents=True, exist_ok=True)
        self.repositories["models"][name] = folder

    def write(self, name: str, lines: bytes) -> None:
        """Apply a commit: one JSON document per line, each with a file."""
        for line in map(json.loads, lines.splitlines()):
            if line["key"] == "file":
                path = self.repositories["models"][name] / line["value"]["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(line["value"]["content"]))

    def folder(self, kind: str, name: str) -> Path | None:
        return self.repositories.get(kind, {}).get(name)

    def description(self, kind: str, name: str) -> dict[str, Any]:
        files = [{"rfilename": entry["path"]} for entry in self.tree(kind, name)]
        return {"_id": "0", "id": name, "sha": COMMIT, "private": False, "gated": False, "tags": [], "siblings": files}

    def tree(self, kind: str, name: str) -> list[dict[str, Any]]:
        folder = self.folder(kind, name)
        assert folder is not None
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return [
            {"type": "file", "path": str(path.relative_to(folder)), "size": path.stat().st_size, "oid": etag(path)}
            for path in files
        ]


def etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_GET(self) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            self._create()
        elif parts[0] == "api" and len(parts) > 3:
            self._api(parts[1], "/".join(parts[2:4]), parts[4:])
        elif "resolve" in parts:
            place = parts.index("resolve")
            kind = "datasets" if parts[0] == "datasets" else "models"
            self._file(kind, "/".join(parts[place - 2 : place]), "/".join(parts[place + 2 :]))
        else:
            self._say(200, {})

    do_HEAD = do_POST = do_GET

    def _create(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.hub.tokens.append(self.headers.get("Authorization", ""))
        if self.hub.keeps is None or not self.hub.tokens[-1]:
            self._say(401, {"error": "Invalid credentials"})
            return
        name = f"{wanted['organization']}/{wanted['name']}"
        self.hub.make(name)
        self._say(200, {"url": f"{self.hub.url}/{name}", "private": wanted.get("private", False)})

    def _api(self, kind: str, name: str, rest: list[str]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.hub.folder(kind, name) is None:
            self._say(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif not rest or rest[0] == "revision":
            self._say(200, self.hub.description(kind, name))
        elif rest[0] == "tree":
            below = "/".join(rest[2:])
            self._say(200, [entry for entry in self.hub.tree(kind, name) if entry["path"].startswith(below)])
        elif rest[0] == "paths-info":
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else []
            self._say(200, [entry for entry in self.hub.tree(kind, name) if entry["path"] in wanted])
        elif rest[0] in ("preupload", "commit") and not self.headers.get("Authorization"):
            self._say(401, {"error": "Invalid credentials"})
        elif rest[0] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self._say(200, {"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        elif rest[0] == "commit":
            self.hub.write(name, body)
            commit = {"commitUrl": f"{self.hub.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
            self._say(200, commit | {"hookOutput": "", "success": True})
        else:
            self._say(404, {"error": "not here"})

    def _file(self, kind: str, name: str, file: str) -> None:
        folder = self.hub.folder(kind, name)
        if folder is None:
            self._say(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif not (folder / file).is_file():
            self._say(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            content = (folder / file).read_bytes()
            self._send(200, content, {"ETag": f'"{etag(folder / file)}"', "X-Repo-Commit": COMMIT})

    def _say(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        start, end = 0, len(content)
        wanted = self.headers.get("Range", "")
        if status == 200 and wanted.startswith("bytes="):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(end, int(last) + 1) if last else end
            headers = {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}
            status = 206
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(end - start), "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[start:end])

    def log_message(self, format: str, *args: object) -> None:
        """Discard log messages."""


@contextmanager
def fake_hub(keeps: Path | None = None, **repositories: dict[str, Path]) -> Iterator[FakeHub]:
    """Start a hub on a free loopback port, with ``models`` and ``datasets`` from folders."""
    hub = FakeHub({"models": {}, **repositories}, keeps=keeps)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def using_hub(url: str, home: Path, token: str = "") -> Iterator[None]:
    """Make the clients of this process use another Hub and cache, as HF_ENDPOINT and HF_HOME do at import."""
    changes = {str(constants.ENDPOINT): url, str(constants.HF_HOME): str(home)}
    with pytest.MonkeyPatch.context() as patched:
        for module in (constants, datasets.config):
            for name, value in vars(module).copy().items():
                if isinstance(value, str | Path) and not name.startswith("__"):
                    changed = str(value)
                    for old, new in changes.items():
                        changed = changed.replace(old, new)
                    patched.setattr(module, name, type(value)(changed))
            patched.setattr(module, "HF_HUB_OFFLINE", False)
        patched.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patched.setattr(hf_api.api, "endpoint", url)
        patched.setattr(transformers_hub, "_hf_api", None)  # of transformers, made at its first request
        patched.setenv("HF_TOKEN", token)
        for name in [name for name in os.environ if name.upper().endswith("PROXY")]:
            patched.delenv(name)
        close_session()
        try:
            yield
        finally:
            close_session()
