"""The guard, through the application: tokens, roles, hosts, proxies and sizes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from mxd.backend.api.app import build_api, create_app
from mxd.backend.api.dependencies import COOKIE, READING_POSTS, needed_role
from mxd.backend.database.annotations import create_token, revoke_token, tokens
from mxd.backend.database.engine import opened
from mxd.backend.settings import Role, Settings
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.processes import server

LABEL = "/api/runs/first/experts/1"


@pytest.fixture
def guarded(own: Engine, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a server that is bound beyond this machine."""
    settings = Settings(data=tmp_path, frontend=tmp_path / "dist", host="0.0.0.0")
    with TestClient(create_app(settings)) as client:
        yield client


def bearer(database: Engine, role: Role) -> dict[str, str]:
    with writing(database) as session:
        return {"Authorization": f"Bearer {create_token(session, role, 'a test').token}"}


def test_without_a_token_only_pages_are_served(guarded: TestClient) -> None:
    for path in ("/api/health", "/api/runs", "/api/none", "/metrics"):
        answer = guarded.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not-signed-in")
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert guarded.get("/healthz").text == '"ok"' or guarded.get("/healthz").text == "ok"
    assert guarded.get("/docs").status_code == 200
    assert guarded.get("/api/access").json() == {"tokens_required": True, "role": None}


def test_a_reader_reads_and_a_writer_writes(guarded: TestClient, own: Engine) -> None:
    reads, writes = bearer(own, "read"), bearer(own, "write")
    assert guarded.get("/api/runs", headers=reads).status_code == 200
    refused = guarded.patch(LABEL, json={"label": "x"}, headers=reads)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    steering = guarded.post("/api/runs/first/steering", json={"prompt": "x"}, headers=reads)
    assert steering.status_code == 403
    assert guarded.patch(LABEL, json={"label": "x"}, headers=writes).status_code == 204


def test_the_session_cookie_is_http_only_and_same_site(guarded: TestClient, own: Engine) -> None:
    token = bearer(own, "read")["Authorization"].removeprefix("Bearer ")
    answer = guarded.post("/api/access", json={"token": f" {token} "})
    assert answer.json() == {"tokens_required": True, "role": "read"}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guarded.get("/api/runs").status_code == 200
    guarded.delete("/api/access")
    assert COOKIE not in guarded.cookies
    assert guarded.get("/api/runs").status_code == 401


def test_a_revoked_token_is_rejected(guarded: TestClient, own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = bearer(own, "read")
    assert guarded.get("/api/runs", headers=headers).status_code == 200
    with writing(own) as session:
        revoke_token(session, tokens(session)[0].id)
    monkeypatch.setattr("mxd.backend.api.dependencies.time.monotonic", lambda: float("inf"))
    assert guarded.get("/api/runs", headers=headers).status_code == 401


def test_tokens_are_hashed_at_rest(own: Engine) -> None:
    token = bearer(own, "write")["Authorization"].removeprefix("Bearer ")
    with own.connect() as connection:
        kept = repr(connection.exec_driver_sql("SELECT * FROM access_tokens").all())
    assert token.removeprefix("mxd_") not in kept


LOCAL = {"host": "localhost:8000"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        *(("GET", {"host": host}, 200) for host in ("localhost:8000", "LOCALHOST", "localhost.", "127.0.0.1:8000")),
        *(("GET", {"host": host}, 200) for host in ("[::1]:8000", "10.0.0.7", "lab", "user@localhost")),
        *(
            ("GET", {"host": host}, 421)
            for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.x", "[::1")
        ),
        ("PATCH", LOCAL | {"origin": "http://localhost:8000"}, 204),
        ("PATCH", LOCAL | {"origin": "http://localhost:9000"}, 403),
        ("PATCH", LOCAL | {"origin": "http://evil.example"}, 403),
        ("PATCH", LOCAL | {"origin": "null"}, 403),
        ("PATCH", LOCAL, 204),
        ("PATCH", LOCAL | {"sec-fetch-site": "same-origin"}, 204),
        ("GET", LOCAL | {"sec-fetch-site": "cross-site"}, 403),
        ("GET", LOCAL | {"sec-fetch-site": "same-site"}, 403),
        ("GET", LOCAL | {"sec-fetch-site": "none"}, 200),
    ],
)
def test_unknown_hosts_and_other_sites_are_rejected(
    own_settings: Settings, method: str, headers: dict[str, str], status: int
) -> None:
    with TestClient(create_app(own_settings.model_copy(update={"allowed_hosts": ("lab",)}))) as client:
        answer = client.request(method, LABEL, headers=headers, json={"label": "x"} if method == "PATCH" else None)
    assert answer.status_code == status
    assert status != 421 or answer.json()["error"]["code"] == "wrong-host"


def test_large_bodies_are_rejected_early(client: TestClient) -> None:
    for content in (b"x" * 3_000_000, (b"x" * 100_000 for _ in range(30))):
        answer = client.post("/api/runs/first/routing", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request-too-large")
    wrong = client.post("/api/runs/first/routing", content=b"x", headers={"content-length": "-1"})
    assert wrong.status_code == 413


READ_WITH_A_BODY = {
    "/api/runs/{run}/routing",
    "/api/runs/{run}/routing/effects",
    "/api/runs/{run}/routing/predictions",
    "/api/runs/{run}/search/passage",
    "/api/circuits",
    "/api/circuits/check",
    "/api/circuits/effects",
    "/api/runs/{run}/contrast",
}
"""POST that changes nothing and is within limits of its own."""
ANYBODY = {"/api/access"}


def test_every_endpoint_needs_a_role() -> None:
    assert set(READING_POSTS) == READ_WITH_A_BODY <= build_api().openapi()["paths"].keys()
    for path, operations in build_api().openapi()["paths"].items():
        for method in operations:
            reads = method in ("get", "head") or path in READ_WITH_A_BODY
            expected = None if path in ANYBODY else "read" if reads else "write"
            assert needed_role(method.upper(), path) == expected, f"{method} {path}"


@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
def test_a_forged_scheme_changes_no_cookie(
    trusted: str, made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shutil.copytree(made_up, tmp_path / "data")
    with opened(sqlite_url(data)) as database, writing(database) as session:
        token = create_token(session, "read", "a test").token
    monkeypatch.setenv("MXD_TRUSTED_PROXIES", trusted)
    with server(data, "--access", "tokens") as (url, _), httpx.Client(base_url=url) as client:
        headers = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https"}
        answer = client.post("/api/access", json={"token": token}, headers=headers)
        assert answer.status_code == 200
        assert ("Secure" in answer.headers["set-cookie"]) == bool(trusted)
