"""Client of a server-sent event stream."""

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
TIMEOUT_SECONDS = 120.0
"""Seconds without a byte after which a stream counts as stuck; pings are far more frequent."""


class RefusedError(ValueError):
    """The server responded with Retry-After."""


def events_of(url: str, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parsed events of a POST request; arguments and errors as for ``data_of``."""
    yield from map(json.loads, data_of(url, path, body))


def data_of(url: str, path: str, body: dict[str, Any]) -> Iterator[bytes]:
    """Yield the raw JSON of each event; closing the generator disconnects.

    Raises:
        RefusedError: the server asks to retry later.
        ValueError: any other failure.
        TimeoutError: no data for too long.
    """
    host = urlsplit(url).netloc
    with closing(http.client.HTTPConnection(host, timeout=TIMEOUT_SECONDS)) as connection:
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
