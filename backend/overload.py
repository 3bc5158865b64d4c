"""Refusing at once what could only be answered late: a server that is asked too much says so, and goes on answering."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.answers import error_answer
from backend.errors import BusyError

ALWAYS_ANSWERED = ("/api/health", "/healthz", "/metrics")
"""What those who run it ask when it is busy."""


class Overload:
    """Middleware that lets a number of requests wait for the beginning of their answers, and refuses more of them.

    A stream counts until it begins: however long it lasts, nobody waits for it.
    """

    def __init__(self, app: ASGIApp, most_waiting: int) -> None:
        self.app = app
        self.most_waiting = most_waiting
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with status 503."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self.app(scope, receive, send)
        elif self._waiting >= self.most_waiting:
            said = f"{self._waiting} requests are waiting already; try again in a moment."
            await error_answer(BusyError(said))(scope, receive, send)
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        waits = True

        def no_longer() -> None:
            nonlocal waits
            self._waiting -= waits
            waits = False

        async def watching(message: Message) -> None:
            no_longer()
            await send(message)

        self._waiting += 1
        try:
            await self.app(scope, receive, watching)
        finally:
            no_longer()
