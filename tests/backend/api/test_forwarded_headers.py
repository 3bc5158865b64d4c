"""Forged X-Forwarded headers: they count only from proxies that the settings name, and never by default on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from mxd.backend.database.access_tokens import create_token
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.processes import server


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
