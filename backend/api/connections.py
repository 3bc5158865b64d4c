"""Limits on connections and on the parts of a request that arrive before the application sees it.

uvicorn and httptools limit neither the size of a request's head nor the time in which a request arrives or a response
is read. Without such limits, idle or slow clients would use up memory and file descriptors.
"""

from __future__ import annotations

import ipaddress
import json
import resource
import socket
from asyncio import BaseTransport, TimerHandle, Transport
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mxd.backend.settings import Settings, is_loopback
from mxd.trainer.utils.overrides import check_overrides

SHUTDOWN_TIMEOUT_S = 2
OTHER_DESCRIPTORS = 256
"""File descriptors kept for files, the database and the listening socket."""
RETRY_AFTER_S = 10
IPV6_NETWORK_BITS = 64
"""One IPv6 customer owns a whole network of this prefix length."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of each connection and of all together."""

    head_bytes: int
    """Largest URL and headers of a request, in bytes."""
    head_seconds: float
    """Time in which the head must arrive, in seconds, from the start of the connection or its first byte."""
    body_seconds: float
    """Time in which the body must arrive, in seconds."""
    send_seconds: float
    """Time in which the client must read what was sent, in seconds."""
    connections: int
    """Largest number of open connections."""
    per_address: int
    """Largest number of open connections of one client address; loopback and trusted proxies have no such limit."""
    proxies: frozenset[str]
    """Addresses of trusted proxies."""

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """Return the limits of the settings, as far as the process may open files."""
        return cls(
            head_bytes=settings.head_bytes,
            head_seconds=settings.head_seconds,
            body_seconds=settings.body_seconds,
            send_seconds=settings.send_seconds,
            connections=min(settings.max_connections, _raise_descriptor_limit(settings.max_connections)),
            per_address=settings.max_connections_per_address,
            proxies=frozenset(settings.trusted_proxies),
        )


def _raise_descriptor_limit(connections: int) -> int:
    """Raise the process's limit of open files if it is low. Returns the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    required = connections + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < required:
        soft = required if hard == resource.RLIM_INFINITY else min(required, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_DESCRIPTORS)


class OpenConnections:
    """Counts the open connections of a server by client address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._by_address: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        """Count a connection unless it would exceed a limit."""
        limited = not (is_loopback(address) or address in self._limits.proxies)
        key = _network(address)
        if self._by_address.total() >= self._limits.connections:
            return False
        if limited and self._by_address[key] >= self._limits.per_address:
            return False
        self._by_address[key] += 1
        return True

    def leave(self, address: str) -> None:
        """Forget a connection that was admitted."""
        key = _network(address)
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]


def _network(address: str) -> str:
    """Return an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_NETWORK_BITS), strict=False))


class _Expected(Enum):
    """Part of the request that the client has not sent yet."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()


class _HeadTooLargeError(Exception):
    """Stops the parser."""


@check_overrides
class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on sizes, times and the number of connections."""

    def __init__(self, limits: ConnectionLimits, open_connections: OpenConnections, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._open_connections = open_connections
        self._address = ""
        self._is_admitted = False
        self._expected = _Expected.HEAD
        self._timed = _Expected.NOTHING
        self._arrival: TimerHandle | None = None
        self._reading: TimerHandle | None = None
        self._undelivered = 0
        """Bytes since the parser last delivered a head or a part of a body."""
        self._is_too_large = False

    # ------------------------------------------------------------ connection

    @override
    def connection_made(self, transport: BaseTransport) -> None:
        """Admit the connection, or refuse it with status 503."""
        assert isinstance(transport, Transport)
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that pause_writing reports every unread byte
        self._address = self.client[0] if self.client else ""
        self._is_admitted = self._open_connections.admit(self._address)
        if self._is_admitted:
            self._time_arrival()
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-connections", "Too many connections are open.")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._is_admitted:
            self._open_connections.leave(self._address)
        for timer in (self._arrival, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # ------------------------------------------------------------ arrival of requests

    @override
    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and check its size and time."""
        self._undelivered += len(data)
        super().data_received(data)
        if self._undelivered > self._limits.head_bytes and not self.transport.is_closing():
            self._is_too_large = True
            self.send_400_response("")
        if self._expected is not self._timed:
            self._time_arrival()

    @override
    def on_message_begin(self) -> None:
        """A request begins."""
        self._expected = _Expected.HEAD
        super().on_message_begin()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers after the body are dropped."""
        if self._expected is _Expected.HEAD:
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        """Check the size of a head that arrived at once."""
        self._undelivered = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.head_bytes:
            self._is_too_large = True
            raise _HeadTooLargeError
        self._expected = _Expected.BODY
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._undelivered = 0
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        """The request has arrived."""
        self._expected = _Expected.NOTHING
        self._undelivered = 0
        super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        """Answer a request that is invalid or too large, and close the connection."""
        if self._is_too_large:
            message = f"URL and headers exceed {self._limits.head_bytes:,} bytes. Shorten them."
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", message)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "invalid-http", f"{msg} Send HTTP/1.1.")

    def _time_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
        self._timed = self._expected
        if self._expected is _Expected.NOTHING or self.transport.is_closing():
            self._arrival = None
            return
        seconds = self._limits.head_seconds if self._expected is _Expected.HEAD else self._limits.body_seconds
        self._arrival = self.loop.call_later(seconds, self._arrives_late)

    def _arrives_late(self) -> None:
        if self.flow.read_paused:  # the server itself is not reading
            self._time_arrival()
        elif self._expected is _Expected.HEAD and not self._undelivered:
            self.transport.close()  # a connection that a browser opened in advance
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", "The request took too long to arrive.")

    # ------------------------------------------------------------ responses

    @override
    def pause_writing(self) -> None:
        """Start the time in which the client must read."""
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        """The client has read everything."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answer without the application and close the connection; a response in progress is cut off."""
        if _is_answering(self.cycle):
            self.transport.abort()
            return
        body = json.dumps({"error": {"code": code, "message": message, "detail": {}}}).encode()
        retry = f"retry-after: {RETRY_AFTER_S}\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _is_answering(cycle: RequestResponseCycle | None) -> bool:
    """Return whether a response is in progress; uvicorn has no cycle before the first request."""
    return cycle is not None and cycle.response_started and not cycle.response_complete


def limited_protocol(limits: ConnectionLimits) -> partial[LimitedProtocol]:
    """Return the protocol of one server, for ``uvicorn.Config(http=…)``."""
    return partial(LimitedProtocol, limits, OpenConnections(limits))


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
