"""Limits on a request before the application sees it, each against one attack that uvicorn's settings do not stop.

| attack | without a limit | limit |
|---|---|---|
| an endless URL or header | it fills the memory | ``head_bytes`` |
| half a request, and then nothing | its connection and descriptor stay forever | ``request_seconds`` |
| a client that does not read | its responses fill the memory | ``send_seconds`` |

uvicorn's ``limit_concurrency`` bounds the number of connections. ``tests/backend/api/test_connections.py`` makes these
attacks.
"""

import json
import socket
from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mxd.backend.settings import Settings
from mxd.trainer.errors import check_overrides

SHUTDOWN_TIMEOUT_S = 2


class _HeadTooLargeError(Exception):
    """Stops the parser."""


@check_overrides
class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the size of a head and on the time of requests and of reading."""

    def __init__(self, settings: Settings, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._in_head = True
        self._arrival: TimerHandle | None = None
        self._reading: TimerHandle | None = None
        self._undelivered = 0
        """Bytes since the parser last delivered a head or a part of a body."""

    @override
    def connection_made(self, transport: BaseTransport) -> None:
        assert isinstance(transport, Transport)
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that pause_writing reports every unread byte
        self._time_arrival()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._arrival)
        self._stop(self._reading)
        super().connection_lost(exc)

    # ------------------------------------------------------------ arrival of requests

    @override
    def data_received(self, data: bytes) -> None:
        self._undelivered += len(data)
        super().data_received(data)
        if self._undelivered > self._settings.head_bytes and not self.transport.is_closing():
            self._refuse_head()

    @override
    def on_message_begin(self) -> None:
        self._in_head = True
        if self._arrival is None:
            self._time_arrival()
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers after the body are dropped."""
        if self._in_head:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        """Check the size of a head that arrived at once."""
        self._undelivered = 0
        self._in_head = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._settings.head_bytes:
            self._refuse_head()
            raise _HeadTooLargeError
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._undelivered = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._undelivered = 0
        self._stop(self._arrival)
        self._arrival = None
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "invalid-http", f"{msg} Send HTTP/1.1.")

    def _time_arrival(self) -> None:
        self._arrival = self.loop.call_later(self._settings.request_seconds, self._arrives_late)

    def _arrives_late(self) -> None:
        if self.flow.read_paused:  # the server itself is not reading
            self._time_arrival()
        elif self._in_head and not self._undelivered:
            self.transport.close()  # a connection that a browser opened in advance
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", "The request took too long to arrive.")

    # ------------------------------------------------------------ responses

    @override
    def pause_writing(self) -> None:
        """Start the time in which the client must read."""
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self._settings.send_seconds, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        self._stop(self._reading)
        self._reading = None
        super().resume_writing()

    @staticmethod
    def _stop(timer: TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()

    def _refuse_head(self) -> None:
        message = f"URL and headers exceed {self._settings.head_bytes:,} bytes. Shorten them."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", message)

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answer without the application and close the connection; a response in progress is cut off."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn has none before the first request
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        body = json.dumps({"error": {"code": code, "message": message, "detail": {}}}).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


@check_overrides
class Server(uvicorn.Server):
    """uvicorn's server, which reports when it accepts requests."""

    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_ready = when_ready

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._when_ready()


def limited_server(application: ASGIApp, settings: Settings, when_ready: Callable[[], None]) -> Server:
    config = uvicorn.Config(
        application,
        # uvloop accepts one new connection per iteration, so most of a burst would wait instead of being rejected.
        loop="asyncio",
        http=partial(LimitedProtocol, settings),  # type: ignore[arg-type]
        limit_concurrency=settings.max_connections,
        ws="none",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
    )
    return Server(config, when_ready)
