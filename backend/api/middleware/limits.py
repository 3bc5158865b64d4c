"""Limits: size of bodies, requests per client, and requests at once.

Read each request's body before the application runs, up to a limit.

Rate limit per client: a token bucket for each.

Reject requests immediately that would be answered too late, so that an overloaded server stays responsive.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxd.backend.errors import BodyTooLargeError, BusyError
from mxd.backend.responses import response_to

OPEN_PATHS = frozenset({"/api/access"})
OPEN_BODY_BYTES = 4096
"""Largest body of a request that needs no token: a sign-in."""


class BodyLimitMiddleware:
    """Rejects a body by its announced length, or when more bytes arrive than allowed.

    The application starts when the body is complete, so a slow client occupies nothing but its connection.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, or respond with status 413. A client that disconnects gets no response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = min(OPEN_BODY_BYTES, self.most_bytes) if scope["path"] in OPEN_PATHS else self.most_bytes
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if not announced.isdigit() or int(announced[:20]) > most:
            await _refuse(most, scope, receive, send)
        elif announced.strip(b"0") or b"transfer-encoding" in headers:
            await self._with_body(most, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _with_body(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                await _refuse(most, scope, receive, send)
                return
        await self.app(scope, _replay(bytes(body), receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that delivers ``body`` first."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replaying() -> Message:
        return messages.pop() if messages else await receive()

    return replaying


async def _refuse(most: int, scope: Scope, receive: Receive, send: Send) -> None:
    response = response_to(BodyTooLargeError(f"The request is larger than {most:,} bytes. Send a shorter text."))
    response.headers["Connection"] = "close"  # the rest of the body is not read
    await response(scope, receive, send)


CLIENTS_REMEMBERED = 10_000
"""Largest number of clients remembered; the least recent is forgotten first, which bounds the memory."""
SECONDS_OF_BURST = 4


@dataclass
class _TokenBucket:
    level: float
    at: float


class RateLimiter:
    """Allows ``per_second`` requests per second and client, with a burst of four seconds' worth."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * SECONDS_OF_BURST)
        self._clock = clock
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request. Returns 0 if it is allowed, otherwise the seconds to wait."""
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _TokenBucket(self._most, now)
        self._buckets[client] = bucket
        if len(self._buckets) > CLIENTS_REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.level = min(self._most, bucket.level + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.level < 1:
            return (1 - bucket.level) / self._per_second
        bucket.level -= 1
        return 0.0


ALWAYS_ANSWERED = ("/api/health", "/healthz", "/metrics")
"""Paths for operators, which are never rejected."""
QUEUED = re.compile(r"^/api/(runs/[^/]+/)?(routing|steering)(/\w+)?$")
"""Requests with a queue of their own, which tells refused ones honestly when to return."""
TURN_SECONDS = 0.25
"""Largest queueing delay, in seconds, among requests that arrived together; later ones are rejected."""
FEW = 32
"""Number of requests that are never rejected, however late: a pause of the machine, not an overload."""


class LoadSheddingMiddleware:
    """Handles requests that can be answered soon and rejects the rest.

    The number of requests that wait for the start of their response is limited. A stream counts only until it starts.
    Requests served from memory wait only for the event loop, and that delay is limited.
    """

    def __init__(self, app: ASGIApp, most_waiting: int) -> None:
        self.app = app
        self.most_waiting = most_waiting
        self._waiting = 0
        self._turn_began: float | None = None
        self._in_turn = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, or respond with status 503."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self.app(scope, receive, send)
        elif self._waiting >= self.most_waiting:
            error = BusyError(f"{self._waiting} requests are already waiting. Try again in a moment.")
            if QUEUED.match(scope["path"]):
                # A burst is refused here before its first requests have reached the queue.
                error.seconds = scope["app"].state.services.live.return_seconds(arriving=self._waiting)
            await response_to(error)(scope, receive, send)
        elif self._is_late() and not QUEUED.match(scope["path"]):
            await response_to(BusyError("The server is overloaded. Try again in a moment."))(scope, receive, send)
        else:
            await self._counted(scope, receive, send)

    def _is_late(self) -> bool:
        """Return True if many requests that arrived together with this one have waited too long."""
        loop = asyncio.get_running_loop()
        if self._turn_began is None:
            self._turn_began, self._in_turn = loop.time(), 0
            loop.call_soon(self._end_turn)  # after all requests that have arrived by now
        self._in_turn += 1
        return self._in_turn > FEW and loop.time() - self._turn_began > TURN_SECONDS

    def _end_turn(self) -> None:
        self._turn_began = None

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        waits = True

        def stop_waiting() -> None:
            nonlocal waits
            self._waiting -= waits
            waits = False

        async def send_wrapped(message: Message) -> None:
            stop_waiting()
            await send(message)

        self._waiting += 1
        try:
            await self.app(scope, receive, send_wrapped)
        finally:
            stop_waiting()
