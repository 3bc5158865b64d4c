"""Reading a stream of server-sent events, as a client does."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

REFUSALS = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
PATIENCE_SECONDS = 120.0
"""Without a single byte, after which a client counts as stuck; pings come far more often."""


class RefusedError(ValueError):
    """The server asks to come back later, and says when."""


def events_of(url: str, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events that a POST is answered with, as they come; arguments and errors as ``data_of``."""
    yield from map(json.loads, data_of(url, path, body))


def data_of(url: str, path: str, body: dict[str, Any]) -> Iterator[bytes]:
    """The JSON of each event, unread; who stops asking for more hangs up.

    Raises:
        RefusedError: it is to be asked again later.
        ValueError: it is not answered otherwise.
        TimeoutError: nothing comes for too long.
    """
    host = urlsplit(url).netloc
    with closing(http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            said = f"{answer.status}: {answer.read(500).decode(errors='replace')}"
            is_refusal = answer.status in REFUSALS and answer.headers["Retry-After"] is not None
            raise RefusedError(said) if is_refusal else ValueError(said)
        try:
            for line in answer:
                if line.startswith(b"data: "):
                    yield line[6:]
        finally:
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            answer.close()
