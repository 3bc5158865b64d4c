"""``mxd serve``: URL, tokens, bundles, streams, shutdown. ``mxd demo``: preparation on first use, its database."""

import json
import lzma
import shutil
import signal
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.cli.commands import serve
from mxd.backend.cli.commands.serve import prepare_language_models
from mxd.backend.cli.main import run
from mxd.backend.database.demo import demo_database_url, unpacked_database
from mxd.backend.database.engine import open_database
from mxd.backend.queries.probes import stored_benchmark
from mxd.backend.settings import DEMO_DATABASE, Settings
from mxd.trainer.config.training import TextConfig, TrainConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.run import run_names
from tests.backend.cli.conftest import Capture, document, output, rejected
from tests.helpers import TEST_DEMO
from tests.helpers.databases import DATASETS, write_benchmark
from tests.helpers.processes import TIMEOUT_SECONDS, server, start
from tests.helpers.runs import World


def steering(url: str, client: httpx.Client, max_tokens: int) -> Any:
    """Return an open stream of a generation."""
    body = {"prompt": "the old fox", "sampling": {"max_tokens": max_tokens, "temperature": 1.0, "top_p": 1.0}}
    return client.stream("POST", f"{url}/api/runs/small/steering", json=body)


def test_closed_connections_free_the_queue(fitted: World) -> None:
    flags = ("--max-inference-requests", "2")
    with server(fitted.data, *flags) as (url, _), httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        for _ in range(4):
            with steering(url, client, 100) as first, steering(url, client, 100) as second:
                assert next(first.iter_lines()) == next(second.iter_lines()) == "event: start"
            # Both places were in use. The server notices closed connections a moment later.
            deadline = time.monotonic() + 5
            while client.post(f"{url}/api/runs/small/routing", json={"text": "x"}).status_code == 503:
                assert time.monotonic() < deadline
                time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_while_streams_are_open(fitted: World, number: int) -> None:
    with server(fitted.data) as (url, process), httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        with client.stream("GET", f"{url}/api/runs/small/events") as events, steering(url, client, 100) as answer:
            lines = events.iter_lines(), answer.iter_lines()  # kept: a dropped iterator closes its stream
            assert [next(each) for each in lines] == ["event: status", "event: start"]
            process.send_signal(number)
            process.wait(timeout=10)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.returncode in (0, -signal.SIGTERM)


def test_tokens_are_made_listed_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("MXD_DATA", str(tmp_path))
    made = document(capsys, "token", "create", "--role", "write", "--name", "lab")
    assert made["token"].startswith("mxd_")
    listed = document(capsys, "token", "list")
    assert [(it["id"], it["role"], it["name"]) for it in listed] == [(made["id"], "write", "lab")]
    assert made["token"] not in json.dumps(listed)
    for id, code in ((made["id"], 0), (made["id"], 2), (10**20, 2)):
        assert run(["token", "revoke", str(id)]) == code
    assert "Unknown token: 1." in capsys.readouterr().err


def test_an_exposed_server_prints_its_first_tokens_once_and_closes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXD_DATA", str(tmp_path))
    tmp_path.chmod(0o755)
    tokens: list[str] = []
    for wanted in (2, 0):
        with start("serve", "--host", "0.0.0.0", "--port", "0", "--device", "cpu", folder=tmp_path) as process:
            assert process.stdout is not None
            said: list[str] = []
            while not said or not said[-1].startswith("MxD Explorer is running at"):
                said.append(process.stdout.readline())
                assert said[-1], process.communicate()[1]
            url = said[-1].split()[5]
            found = [line.split()[1] for line in said if line.strip().startswith(("read", "write"))]
            assert len(found) == wanted
            tokens += found
            assert httpx.get(f"{url}/api/runs").status_code == 401
            for token in tokens:
                assert httpx.get(f"{url}/api/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            process.kill()
            assert ("only you can read" in process.communicate()[1]) == (wanted == 2)
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_bundle_is_served(fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    served: list[Settings] = []
    monkeypatch.setattr(serve, "serve", lambda settings, _when_ready: served.append(settings))
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(fitted.data, tmp_path / "data")
    assert output(capsys, "export", "small", "--format", "mxd", "--data", str(data)).startswith("small.mxd, ")
    assert run(["serve", "small.mxd", "--port", "0"]) == 0
    assert run(["serve", "small.mxd", "--port", "0", "--into", "elsewhere"]) == 0
    assert [settings.data for settings in served] == [Path("small-opened"), Path("elsewhere")]
    assert run_names(Path("elsewhere")) == ["small"]
    for line, sentence in (
        ("serve small.mxd --data data", "Leave out --data and --database."),
        ("export small --out tables --experts 3 --data data", "--experts "),
        ("export small --out tables --model-id gpt2 --data data", "--model-id "),
        ("serve --into elsewhere", "--into and --language-model require a .mxd file"),
        ("serve none.mxd --port 0", "none.mxd"),
    ):
        assert sentence in rejected(capsys, *line.split())


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder with only a packed database, without runs."""
    folder, file = tmp_path / "demo", tmp_path / "database.sqlite"
    folder.mkdir()
    open_database(f"sqlite:///{file}").dispose()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE words AS SELECT 'fox' AS word")
    (folder / DEMO_DATABASE).write_bytes(lzma.compress(file.read_bytes()))
    file.unlink()
    return folder


def test_the_database_is_unpacked_once_and_keeps_changes(demo: Path) -> None:
    for kept in (["fox"], ["fox", "dog"]):
        with closing(sqlite3.connect(unpacked_database(demo).removeprefix("sqlite:///"))) as database, database:
            assert [word for (word,) in database.execute("SELECT word FROM words")] == kept
            database.execute("INSERT INTO words VALUES ('dog')")


def test_newer_columns_are_filled_from_files(tmp_path: Path) -> None:
    demo = shutil.copytree(TEST_DEMO, tmp_path / "demo")
    names = list(json.loads((demo / "sessions.json").read_text())["demo-l3-k16"])
    texts = {name: {"text": f"text of {name}", "result": {"kl_nats": 2}} for name in names[1:]}
    (demo / "session_texts.json").write_text(json.dumps({"demo-l3-k16": texts}))
    run = demo / "runs" / "demo-l3-k16"
    prices, units = (json.loads((run / f"{name}.json").read_text()) for name in ("prices", "units"))
    with closing(sqlite3.connect(unpacked_database(demo).removeprefix("sqlite:///"))) as database:
        stored = dict(database.execute("SELECT expert, steerability FROM experts").fetchall())
        saved = database.execute("SELECT name, text, result FROM sessions").fetchall()
    assert {name: text for name, text, _ in saved} == {names[0]: None, **{n: each["text"] for n, each in texts.items()}}
    assert [result for _, _, result in saved if result] == ['{"kl_nats": 2}'] * len(texts)
    for each in texts.values():
        each["result"] = {"kl_nats": 9, "price": {"items": 200}}  # measured later
    (demo / "session_texts.json").write_text(json.dumps({"demo-l3-k16": texts}))
    with closing(sqlite3.connect(unpacked_database(demo).removeprefix("sqlite:///"))) as database:
        saved = database.execute("SELECT result FROM sessions WHERE text IS NOT NULL").fetchall()
    assert [json.loads(result) for (result,) in saved] == [{"kl_nats": 2, "price": {"items": 200}}] * len(texts)
    mean = sum(prices[expert] * unit**2 for expert, unit in units.items()) / len(units)
    # 24 draws of signs, and as many as 16 that say the mean.
    expected = {int(each): (24 * prices[each] * unit**2 + 16 * mean) / 40 for each, unit in units.items()}
    assert {expert: price for expert, price in stored.items() if price} == pytest.approx(expected, rel=1e-4)
    assert len(stored) == len(prices)


def test_a_damaged_database_is_an_error_and_leaves_nothing(demo: Path) -> None:
    packed = (demo / DEMO_DATABASE).read_bytes()
    for damaged in (packed[:-40], b"text" + packed[4:]):
        (demo / DEMO_DATABASE).write_bytes(damaged)
        with pytest.raises(UserError, match="is damaged"):
            unpacked_database(demo)
        assert [path.name for path in demo.parent.iterdir()] == ["demo"]


def test_a_missing_language_model_is_an_error_that_names_the_package(tmp_path: Path) -> None:
    prepare_language_models(tmp_path)
    text = TextConfig(dataset="t")
    config = TrainConfig(name="small", language_model="package:no-such-package", layer=1, text=text, tokens=1)
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(config.model_dump_json())
    with pytest.raises(NotFoundError, match="pip install --no-deps no-such-package"):
        prepare_language_models(tmp_path)


def test_the_demo_is_served_with_its_database_and_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sample = shutil.copytree(TEST_DEMO, tmp_path / "demo")
    write_benchmark(sample, "demo-l3-k16")
    served = []
    monkeypatch.setattr("mxd.backend.cli.commands.serve.serve", lambda settings, when_ready: served.append(settings))
    assert run(["demo", "--data", str(sample), "--port", "0"]) == 0
    (settings,) = served
    assert settings.command_flags == f"--data {sample}"
    assert settings.database_url == demo_database_url(sample)
    with TestClient(create_app(settings)) as client:
        (found,) = client.get("/api/runs").json()["runs"]
        assert client.get("/api/runs/demo-l3-k16/sessions").json()["sessions"]
    assert (found["name"], found["status"], found["indexed_tokens"]) == ("demo-l3-k16", "finished", 19968)
    benchmark, _ = stored_benchmark(settings.data)
    assert benchmark is not None
    assert benchmark.datasets == DATASETS


def test_a_missing_demo_and_another_database_are_refused(demo: Path, tmp_path: Path, capsys: Capture) -> None:
    said = rejected(capsys, "demo", "--data", str(tmp_path), "--port", "0")
    assert f"No demo in {tmp_path}: it has no database.sqlite.xz." in said
    assert "--database" in rejected(capsys, "demo", "--data", str(demo), "--database", f"sqlite:///{demo}/other.sqlite")
    assert not list(tmp_path.glob("**/*.sqlite"))
