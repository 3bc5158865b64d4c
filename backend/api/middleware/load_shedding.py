"""Reject requests immediately that would be answered too late, so that an overloaded server stays responsive."""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxd.backend.errors import BusyError
from mxd.backend.responses import response_to

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
