"""Forged X-Forwarded headers: they count only from proxies that the settings name, and never by default on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from mxd.backend.api.middleware.authentication import COOKIE
from mxd.backend.database.access_tokens import create_token
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.processes import server

GUESSES = 12


@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
def test_forged_addresses_do_not_avoid_the_rate_of_sign_ins(
    trusted: str, made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shutil.copytree(made_up, tmp_path / "data")
    with opened(sqlite_url(data)) as database, writing(database) as session:
        token = create_token(session, "read", "a test").token
    monkeypatch.setenv("MXD_TRUSTED_PROXIES", trusted)
    monkeypatch.setenv("MXD_SIGN_IN_RATE", "0.5")
    with server(data, "--access", "tokens") as (url, _), httpx.Client(base_url=url) as client:
        statuses = []
        for number in range(GUESSES):
            headers = {"X-Forwarded-For": f"192.0.2.{number}", "X-Forwarded-Proto": "https"}
            statuses.append(client.post("/api/access", json={"token": "guess"}, headers=headers).status_code)
        headers = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "https"}
        answer = client.post("/api/access", json={"token": token}, headers=headers)
        if trusted:
            assert statuses == [401] * GUESSES
            assert "Secure" in answer.headers["set-cookie"]
        else:
            assert statuses.count(429) >= GUESSES // 2
            assert COOKIE not in client.cookies
