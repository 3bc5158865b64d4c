"""Attacks by clients that send slowly, send too much, do not read, or open too many connections: a real server."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psutil import Process

from mxd.backend.database.annotations import create_token
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import sqlite_url, writing
from tests.helpers.processes import server, wait_for
from tests.helpers.servers import raw_http
from tests.helpers.servers.raw_http import HEAD, connections

HEAD_BYTES = 8_192
MOST_CONNECTIONS = 60
SOON = 10
"""Seconds in which the limits of a second must have been applied, on a shared machine."""
LIMITS = {"HEAD_BYTES": HEAD_BYTES, "REQUEST_SECONDS": 1, "SEND_SECONDS": 1, "MAX_CONNECTIONS": MOST_CONNECTIONS}


@pytest.fixture(scope="module")
def running(made_up: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Process]]:
    """URL and process of a server with small limits that requires tokens."""
    data = shutil.copytree(made_up, tmp_path_factory.mktemp("guarded") / "data")
    with opened(sqlite_url(data)) as database, writing(database) as session:
        create_token(session, "read", "a test")  # otherwise the server would create and print some
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS.items():
            patch.setenv(f"MXD_{name}", str(value))
        with server(data, "--access", "tokens") as (url, process):
            yield url, Process(process.pid)


@pytest.fixture
def guarded(running: tuple[str, Process]) -> str:
    return running[0]


SIGN_IN = f"POST /api/access {HEAD}Content-Type: application/json\r\nContent-Length: 40\r\n\r\n{{".encode()


@pytest.mark.parametrize(
    ("first", "number", "status"),
    [
        (b"", MOST_CONNECTIONS, {503, None}),
        *(
            (first, MOST_CONNECTIONS // 2, {200})
            for first in (b"GET /api", f"GET /api {HEAD}X: y\r\n".encode(), SIGN_IN)
        ),
    ],
    ids=["too many", "half a line", "half a head", "half a sign-in"],
)
def test_incomplete_requests_are_closed_soon(guarded: str, first: bytes, number: int, status: set[int | None]) -> None:
    with connections(guarded, number, first) as held:
        assert raw_http.ask(guarded, "/api/access") in status
        end = time.monotonic() + SOON
        assert all(raw_http.is_closed(it) for it in held)
        assert time.monotonic() < end
    assert raw_http.ask(guarded, "/api/access") == 200


def test_unread_bodies_are_not_awaited_without_a_token(guarded: str) -> None:
    half = f"PATCH /api/runs/first/experts/1 {HEAD}Content-Length: 40\r\n\r\n{{".encode()
    with connections(guarded, 1, half) as (it,):
        assert raw_http.status(it) == 401


@pytest.mark.parametrize(
    "begin", [f"GET / {HEAD}X: ", "GET /", f"POST /api/access {HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\nX: "]
)
def test_endless_headers_and_trailers_close_the_connection(guarded: str, begin: str) -> None:
    with raw_http.connect(guarded) as it:
        it.sendall(begin.encode())
        sent = 0
        try:
            while sent < 100 * HEAD_BYTES:
                sent += it.send(b"x" * 1024)
                time.sleep(0)
        except ConnectionError:
            pass
        assert sent < 2_000_000
        assert raw_http.status(it) in (None, 401, 413, 422, 431)
        assert raw_http.is_closed(it)
    assert raw_http.ask(guarded, "/api/access") == 200


def test_large_headers_are_accepted(guarded: str) -> None:
    with connections(guarded, 1, raw_http.request("GET", "/api/access", headers={"X": "x" * HEAD_BYTES})) as (it,):
        assert raw_http.status(it) == 431
    assert raw_http.ask(guarded, "/api/access", {"X": "x" * (HEAD_BYTES // 2)}) == 200


def test_an_invalid_request_is_a_json_error(guarded: str) -> None:
    with connections(guarded, 1, b"\x00\x01\r\n\r\n") as (it,):
        answer = it.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid-http"


def test_clients_that_do_not_read_are_disconnected(running: tuple[str, Process]) -> None:
    url, process = running
    count = 64
    with raw_http.connect(url, raw_http.SMALL_BUFFER) as it:
        it.sendall(count * raw_http.request("GET", "/openapi.json"))
        port = it.getsockname()[1]

        def is_connected() -> bool:
            return any(peer.raddr and peer.raddr.port == port for peer in process.net_connections("tcp"))

        wait_for(is_connected)  # the server has accepted it
        wait_for(lambda: not is_connected())
        answers = b"".join(iter(lambda: it.recv(1 << 20), b""))
    assert 0 < answers.count(b"HTTP/1.1 200 OK") < count
    assert raw_http.ask(url, "/api/access") == 200
