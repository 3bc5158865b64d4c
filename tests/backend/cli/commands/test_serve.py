"""``mxd serve``: its URL, tokens, bundles, streams, closed connections and shutdown."""

import json
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.orm import Session

from mxd.backend.cli.commands import serve
from mxd.backend.cli.commands.serve import protect_folder
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.tables import MetricRecord
from mxd.trainer.storage.run import run_names
from tests.backend.cli.words import Capture
from tests.helpers.databases import metric
from tests.helpers.processes import TIMEOUT_SECONDS, server, start
from tests.helpers.runs import World


@pytest.fixture(scope="module")
def running(fitted: World) -> Iterator[str]:
    """URL of a server for the trained run that accepts two inference requests."""
    with server(fitted.data, "--max-inference-requests", "2") as (url, _):
        yield url


def steering(url: str, client: httpx.Client, max_tokens: int) -> Any:
    """Return an open stream of a generation."""
    body = {"prompt": "the old fox", "sampling": {"max_tokens": max_tokens, "temperature": 1.0, "top_p": 1.0}}
    return client.stream("POST", f"{url}/api/runs/small/steering", json=body)


def test_closed_connections_free_the_queue(running: str) -> None:
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        for _ in range(4):
            with steering(running, client, 100) as first, steering(running, client, 100) as second:
                assert next(first.iter_lines()) == next(second.iter_lines()) == "event: start"
            # Both places were in use. The server notices closed connections a moment later.
            deadline = time.monotonic() + 5
            while client.post(f"{running}/api/runs/small/routing", json={"text": "x"}).status_code == 503:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_metrics_are_streamed_as_they_are_written(running: str, fitted: World) -> None:
    events = f"{running}/api/runs/small/events"
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client, client.stream("GET", events) as answer:
        lines = answer.iter_lines()
        assert [next(lines), json.loads(next(lines)[6:])] == ["event: status", {"status": "finished"}]
        with Session(fitted.database) as session, session.begin():
            session.add(metric(1, 1_000_000))
        assert [next(lines), next(lines)] == ["", "event: metric"]
        assert json.loads(next(lines)[6:])["step"] == 1_000_000
    with Session(fitted.database) as session, session.begin():
        session.delete(session.get_one(MetricRecord, (1, 1_000_000)))


def test_the_data_folder_is_private_where_tokens_are_required(tmp_path: Path, capsys: Capture) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir(mode=0o755)
    for _ in range(2):
        for folder in (old, new):
            protect_folder(folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert capsys.readouterr().err.count("only you can read") == 1


def test_sigint_stops_the_server_while_a_stream_is_open(made_up: Path) -> None:
    with server(made_up) as (url, process), httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        with client.stream("GET", f"{url}/api/runs/first/events") as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGINT)
            process.wait(timeout=10)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.returncode == 0


def test_sigterm_stops_the_server_during_a_generation(fitted: World) -> None:
    with server(fitted.data) as (url, process), httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        with steering(url, client, 100) as answer:
            assert next(answer.iter_lines()) == "event: start"
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=10)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_a_packed_run_is_served(
    fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr(serve, "serve", lambda settings, _when_ready: served.append(settings))
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(fitted.data, tmp_path / "data")
    assert run(["export", "small", "--format", "mxd", "--data", str(data)]) == 0
    assert capsys.readouterr().out.startswith("small.mxd, ")
    assert run(["serve", "small.mxd", "--port", "0"]) == 0
    assert run(["serve", "small.mxd", "--port", "0", "--into", "elsewhere"]) == 0
    assert [settings.data for settings in served] == [Path("small-opened"), Path("elsewhere")]
    assert run_names(Path("elsewhere")) == ["small"]
    assert run(["serve", "small.mxd", "--data", str(data)]) == 2
    assert "Leave out --data and --database." in capsys.readouterr().err
    for words, option in ((["--experts", "3"], "--experts"), (["--model-id", "gpt2"], "--model-id")):
        assert run(["export", "small", "--out", "tables", *words, "--data", str(data)]) == 2
        assert f"{option} " in capsys.readouterr().err
    assert run(["serve", "--into", "elsewhere"]) == 2
    assert "--into and --language-model require a .mxd file" in capsys.readouterr().err
    assert run(["serve", "none.mxd", "--port", "0"]) == 2
    assert "none.mxd" in capsys.readouterr().err
