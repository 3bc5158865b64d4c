"""Every command and a server on PostgreSQL; and what they do when all its processes are killed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.engine import NO_ANSWER
from tests.backend.conftest import printed
from tests.helpers import processes
from tests.helpers.databases import stored_rows
from tests.helpers.runs import saved_language_model, small_world
from tests.helpers.servers.postgresql import LASTING, Server, postgresql

SIZES = "--num-experts 40 --k 4 --context-length 16 --batch-tokens 64 --buffer-tokens 512 --tokens 1536"
RUN = "/api/runs/small"
EXPERTS = f"{RUN}/experts?sort=entropy&order=desc"
LABEL = f"{RUN}/experts/3"
KEPT = ("experts", "examples", "sequences", "automatic_labels", "indexes")


@dataclass(frozen=True)
class Place:
    """A data folder, its database in PostgreSQL, and the server of that."""

    folder: Path
    server: Server
    url: str

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def words(self, line: str, *more: str) -> list[str]:
        """A command line in which TEXT and MODEL stand for those of the place."""
        files = {"TEXT": str(self.folder / "text.jsonl"), "MODEL": str(self.folder / "language-model")}
        given = [files.get(word, word) for word in line.split()]
        return [*given, *more, "--data", str(self.data), "--database", self.url]

    def train(self, name: str, *more: str) -> list[str]:
        text = "--dataset TEXT --on-short-text repeat --device cpu"
        return self.words(f"train MODEL --layer 1 --name {name} {text} {SIZES}", *more)

    def index(self, *more: str) -> list[str]:
        return self.words("index small --dataset TEXT --tokens 2000 --device cpu", *more)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return stored_rows(self.url, table)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with a tiny language model and text, and nothing in its database."""
    folder = tmp_path_factory.mktemp("postgresql")
    small_world(folder).database.dispose()
    (folder / "data" / "mxd.sqlite").unlink()
    saved_language_model(folder / "language-model")
    with postgresql(LASTING) as server:
        yield Place(folder, server, server.new())


@pytest.fixture(autouse=True)
def _running(place: Place) -> None:
    if not place.server.is_running:
        place.server.start()


@pytest.fixture(scope="module")
def said(place: Place) -> dict[str, Any]:
    """Output of the commands that create and measure the run ``small``, by command."""
    evaluate = "evaluate small --dataset TEXT --seen-text --tokens 1600 --prompts 2 --resamples 200 --device cpu"
    commands = (place.train("small"), place.index(), place.words("label small"), place.words(evaluate))
    return {words[0]: printed(*words) for words in commands}


def test_every_command_works_on_postgresql(place: Place, said: dict[str, Any]) -> None:
    assert said["train"]["tokens"] == 1536
    assert said["index"]["tokens"] == 2000
    assert said["label"]["experts"] == said["index"]["active_experts"]
    (runs,) = printed(*place.words("runs"))
    assert (runs["name"], runs["status"], runs["indexed_tokens"]) == ("small", "finished", 2000)
    assert len(place.rows("evaluations")) == 1
    assert not (place.data / "mxd.sqlite").exists()
    with (
        processes.server(place.data, "--database", place.url) as (address, _),
        httpx.Client(base_url=address, timeout=300) as client,
    ):
        page = client.get(EXPERTS).json()
        assert (page["total"], page["experts"][0]["entropy"] > 0) == (40, True)
        assert client.patch(LABEL, json={"label": "foxes"}).status_code == 204
        assert client.get(f"{RUN}/experts/3").json()["row"]["label"] == "foxes"
        assert client.post(f"{RUN}/routing", json={"text": "the old fox"}).status_code == 200


@pytest.mark.parametrize("access", ["open", "tokens"])
def test_a_server_reports_a_lost_connection_and_recovers(place: Place, said: dict[str, Any], access: Any) -> None:
    settings, usual = Settings(data=place.data, database=place.url, frontend=place.folder, access=access), 200
    with TestClient(create_app(settings), headers={"Authorization": "Bearer anything"}) as client:
        if access == "tokens":
            usual = 401  # that the token is unknown is known from the database alone
        assert client.get(EXPERTS).status_code == usual
        place.server.kill()
        for _ in range(2):
            for answer in (client.get(EXPERTS), client.get("/api/runs"), client.patch(LABEL, json={"label": "lost"})):
                assert answer.status_code == 503
                error = answer.json()["error"]
                assert (error["code"], error["message"]) == ("database-unavailable", NO_ANSWER)
                assert int(answer.headers["retry-after"]) > 0
        assert client.get("/healthz").status_code == 200
        place.server.start()
        assert client.get(EXPERTS).status_code == usual


def test_a_killed_database_loses_no_acknowledged_write(place: Place, said: dict[str, Any]) -> None:
    over = Event()
    seen: dict[int, list[int]] = {1: [], 2: [], 5: [], 6: []}
    acknowledged = dict.fromkeys((5, 6), 0)

    def browse(expert: int) -> None:
        while not over.is_set():
            seen[expert].append(client.get(f"{RUN}/experts/{expert}").status_code)

    def write(expert: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            status = client.patch(f"{RUN}/experts/{expert}", json={"label": f"{number:06}"}).status_code
            acknowledged[expert] = number if status == 204 else acknowledged[expert]
            seen[expert].append(status)

    def wait_until_all_see(statuses: set[int]) -> None:
        processes.wait_for(lambda: all(of_one and of_one[-1] in statuses for of_one in seen.values()))

    app = create_app(Settings(data=place.data, database=place.url, frontend=place.folder))
    with TestClient(app) as client, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(write if expert in acknowledged else browse, expert) for expert in seen]
        try:
            wait_until_all_see({200, 204})
            place.server.kill()
            wait_until_all_see({503})
            place.server.start()
            wait_until_all_see({200, 204})
        finally:
            over.set()
        for one in asking:
            one.result()
        assert {status for of_one in seen.values() for status in of_one} == {200, 204, 503}
        for expert, number in acknowledged.items():
            assert int(client.get(f"{RUN}/experts/{expert}").json()["row"]["label"]) >= number > 0


@contextmanager
def killed_before(server: Server, moment: str) -> Iterator[None]:
    """Kill the server when the first statement that begins with ``moment`` is about to be sent, or the first commit."""

    def kill(*given: Any) -> None:
        sent = given[2] if len(given) > 1 else "COMMIT"  # connection, cursor, statement, …
        if sent.startswith(moment) and server.is_running:
            server.kill()

    moments = ("before_cursor_execute", "commit")
    for name in moments:
        event.listen(Engine, name, kill)
    try:
        yield
    finally:
        for name in moments:
            event.remove(Engine, name, kill)


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("index", "INSERT INTO examples"),
        ("index", "COMMIT"),
        ("label", "INSERT INTO automatic_labels"),
        ("label", "COMMIT"),
        ("label", "SELECT runs"),
    ],
)
def test_a_command_without_its_database_changes_nothing(
    command: str, moment: str, place: Place, said: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = place.index("--seed", "1") if command == "index" else place.words("label small")
    before = {table: place.rows(table) for table in KEPT}
    capsys.readouterr()
    with killed_before(place.server, moment):
        code = run(words)
    assert not place.server.is_running
    place.server.start()
    assert (code, capsys.readouterr().err.splitlines()[-1]) == (2, f"mxd: {NO_ANSWER}")
    assert {table: place.rows(table) for table in KEPT} == before
    assert run(place.words("database check")) == 0
    assert run(words) == 0


def test_training_resumes_after_a_lost_connection(
    place: Place, said: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = place.train("other", "--log-every", "4", "--checkpoint-every", "256")
    with killed_before(place.server, "INSERT INTO metrics"):
        assert run(words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"mxd: {NO_ANSWER}"
    place.server.start()
    assert run([*words, "--resume"]) == 0
    assert len([row for row in place.rows("runs") if "other" in row and "finished" in row]) == 1
