"""Waiting writers and databases that do not answer: readers are answered, and nothing waits longer than its limit."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

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


def test_waiting_writers_do_not_block_readers(waiting_client: TestClient, own: Engine) -> None:
    assert waiting_client.get("/api/runs").status_code == 200

    def write(_number: int) -> tuple[int, bool]:
        answer = waiting_client.patch(LABEL, json={"label": "x"})
        return answer.status_code, "retry-after" in answer.headers

    with ThreadPoolExecutor(WRITERS) as pool, own.connect() as connection:
        is_sqlite = own.dialect.name == "sqlite"
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_sqlite else "LOCK TABLE labels IN EXCLUSIVE MODE")
        written = pool.map(write, range(WRITERS), timeout=TIMEOUT_SECONDS)
        started = time.monotonic()
        for path in ("/api/runs", "/api/runs/first", "/api/health"):
            assert waiting_client.get(path).status_code == 200
        assert time.monotonic() - started < TIMEOUT_SECONDS
        assert set(written) == {(503, True)}
    assert waiting_client.patch(LABEL, json={"label": "x"}).status_code == 204


def test_a_frozen_database_is_unavailable(
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
