"""Damaged requests over raw sockets: the server closes or answers, never with a 5xx, and stays available."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.formats.damage import damaged
from tests.helpers.fuzzing import tried
from tests.helpers.processes import server
from tests.helpers.servers import raw_http

REQUESTS = (
    raw_http.request("GET", "/api/runs/first/experts?sort=density"),
    f"POST /api/access {raw_http.HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n{{'a':\r\n0\r\nX: y\r\n\r\n".encode(),
    2 * raw_http.request("GET", "/healthz"),
)
SECONDS = 0.05


@pytest.fixture(scope="module")
def attacked(made_up: Path) -> Iterator[str]:
    """URL of a server."""
    with server(made_up) as (url, _):
        yield url


def test_damaged_requests_are_answered_or_disconnected(attacked: str) -> None:
    @tried(20)
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        sent = data.draw(st.one_of(damaged(data.draw(st.sampled_from(REQUESTS))), st.binary()))
        with raw_http.connect(attacked) as it:
            it.settimeout(SECONDS)
            with suppress(ConnectionError, TimeoutError):
                it.sendall(sent)
                answer = it.recv(65_536)
                assert not answer.startswith(b"HTTP/1.1 5"), (sent, answer)

    send()
    assert raw_http.ask(attacked, "/healthz") == 200
