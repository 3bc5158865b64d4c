"""Waiting writers and databases that do not answer: readers are answered, and nothing waits longer than its limit."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from tests.helpers.servers.postgresql import Server

LABEL = "/api/runs/first/experts/1"
WRITERS = 60
"""More than the server has threads and connections."""
LIMIT_SECONDS = 1.0
TIMEOUT_SECONDS = 20.0


@pytest.fixture
def waiting_client(own_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server that waits for at most a second, and for a connection 2."""
    monkeypatch.setattr("mxd.trainer.storage.database.engine.CONNECT_SECONDS", 2)  # the least that psycopg waits
    limits = {"write_seconds": LIMIT_SECONDS, "statement_seconds": LIMIT_SECONDS}
    with TestClient(create_app(own_settings.model_copy(update=limits))) as client:
        yield client


def lock(database: Engine, stack: ExitStack) -> None:
    """Hold the lock that a writer of labels needs."""
    connection = stack.enter_context(database.connect())
    if database.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(text("LOCK TABLE labels IN EXCLUSIVE MODE"))


def test_waiting_writers_do_not_block_readers(waiting_client: TestClient, own: Engine) -> None:
    assert waiting_client.get("/api/runs").status_code == 200
    statuses: list[int] = []
    retry_after: list[bool] = []

    def write() -> None:
        answer = waiting_client.patch(LABEL, json={"label": "x"})
        statuses.append(answer.status_code)
        retry_after.append("retry-after" in answer.headers)

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    with ExitStack() as stack:
        lock(own, stack)
        for thread in threads:
            thread.start()
        started = time.monotonic()
        for path in ("/api/runs", "/api/runs/first", "/api/health"):
            assert waiting_client.get(path).status_code == 200
        assert time.monotonic() - started < TIMEOUT_SECONDS
        for thread in threads:
            thread.join(TIMEOUT_SECONDS)
    assert statuses == [503] * WRITERS
    assert all(retry_after)
    assert waiting_client.patch(LABEL, json={"label": "x"}).status_code == 204


def test_a_frozen_postgresql_is_unavailable(
    own: Engine, waiting_client: TestClient, request: pytest.FixtureRequest
) -> None:
    if own.dialect.name != "postgresql":
        return
    assert waiting_client.get("/api/runs").status_code == 200
    server: Server = request.getfixturevalue("postgresql_server")
    assert server._process is not None
    processes = [psutil.Process(server._process.pid), *psutil.Process(server._process.pid).children(recursive=True)]

    def tell(sent: signal.Signals) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a worker of autovacuum ends at any moment
                process.send_signal(sent)

    tell(signal.SIGSTOP)
    try:
        started = time.monotonic()
        answer = waiting_client.get("/api/runs")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database-unavailable")
        assert time.monotonic() - started < TIMEOUT_SECONDS
    finally:
        tell(signal.SIGCONT)
    assert waiting_client.get("/api/runs").status_code == 200
