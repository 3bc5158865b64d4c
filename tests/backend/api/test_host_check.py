"""Requests that were meant for this server, or not; X-Forwarded headers count only from known proxies."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from mxd.backend.api.access import is_cross_site, is_own_host
from mxd.backend.database.access_tokens import create_token
from mxd.backend.database.engine import opened
from mxd.backend.settings import host_name, is_loopback
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.processes import server


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8000", "localhost"),
        ("LOCALHOST", "localhost"),
        ("localhost.", "localhost"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("evil.example", "evil.example"),
        ("", ""),
        ("[::1", ""),
        ("user@localhost", "localhost"),
    ],
)
def test_names_are_parsed_from_host_headers(header: str, name: str) -> None:
    assert host_name(header) == name


def test_only_addresses_localhost_and_allowed_names_are_accepted() -> None:
    assert all(is_own_host(name, {"lab"}) for name in ("localhost", "127.0.0.1", "::1", "10.0.0.7", "lab"))
    assert not any(is_own_host(name, {"lab"}) for name in ("evil.example", "localhost.evil.example", "", "127.0.0.1.x"))


def test_loopback_addresses_are_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.8.8.8")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.7", "lab.example")))


@pytest.mark.parametrize(
    ("method", "headers", "elsewhere"),
    [
        ("POST", {"host": "localhost:8000", "origin": "http://localhost:8000"}, False),
        ("POST", {"host": "localhost:8000", "origin": "http://localhost:9000"}, True),
        ("POST", {"host": "localhost:8000", "origin": "null"}, True),
        ("POST", {"host": "localhost:8000"}, False),
        ("GET", {"host": "localhost:8000", "sec-fetch-site": "cross-site"}, True),
        ("GET", {"host": "localhost:8000", "sec-fetch-site": "same-site"}, True),
        ("GET", {"host": "localhost:8000", "sec-fetch-site": "none"}, False),
        ("DELETE", {"host": "localhost:8000", "sec-fetch-site": "same-origin"}, False),
    ],
)
def test_requests_of_other_sites_are_recognised(method: str, headers: dict[str, str], elsewhere: bool) -> None:
    assert is_cross_site(method, Headers(headers)) is elsewhere


@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
def test_a_forged_scheme_does_not_change_the_cookie(
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
