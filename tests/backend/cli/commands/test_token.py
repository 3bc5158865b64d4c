"""``mxd token``, and the first tokens of a server that requires them."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from mxd.backend.cli.main import run
from tests.helpers.processes import start

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty data folder."""
    monkeypatch.setenv("MXD_DATA", str(tmp_path))
    return tmp_path


def test_create_list_and_revoke(data: Path, capsys: Capture) -> None:
    assert run(["token", "create", "--role", "write", "--name", "lab", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("mxd_")
    assert run(["token", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(it["id"], it["role"], it["name"]) for it in listed] == [(made["id"], "write", "lab")]
    assert made["token"] not in json.dumps(listed)
    assert run(["token", "revoke", str(made["id"])]) == 0
    assert run(["token", "revoke", str(made["id"])]) == 2
    assert "Unknown token: 1." in capsys.readouterr().err
    assert run(["token", "revoke", str(10**20)]) == 2


def test_an_exposed_server_prints_its_first_tokens_once(data: Path) -> None:
    words = ("serve", "--host", "0.0.0.0", "--port", "0", "--device", "cpu")
    tokens: list[str] = []
    for attempt in range(2):
        with start(*words, folder=data) as process:
            assert process.stdout is not None
            said: list[str] = []
            while not said or not said[-1].startswith("MxD Explorer is running at"):
                said.append(process.stdout.readline())
                assert said[-1], process.communicate()[1]
            url = said[-1].split()[5]
            found = [line.split()[1] for line in said if line.strip().startswith(("read", "write"))]
            assert len(found) == (2 if attempt == 0 else 0)
            tokens += found
            assert httpx.get(f"{url}/api/runs").status_code == 401
            for token in tokens:
                assert httpx.get(f"{url}/api/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            process.kill()
