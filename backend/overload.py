"""Refusing at once what could only be answered late: a server that is asked too much says so, and goes on answering."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.answers import error_answer
from backend.errors import BusyError

ALWAYS_ANSWERED = ("/api/health", "/healthz", "/metrics")
"""What those who run it ask when it is busy."""
TURN_SECONDS = 0.25
"""Of many requests that came together, those reached later than this are refused: as long again waits outside."""
FEW = 32
"""As many that came together are never refused, however late: that is a pause of the machine, not a crowd."""


class Overload:
    """Middleware that answers what can be answered soon, and refuses the rest.

    A number of requests may wait for the beginning of their answers. A stream counts until it begins: however long it
    lasts, nobody waits for it. What is answered from memory waits for its turn alone, and turns are limited in time.
    """

    def __init__(self, app: ASGIApp, most_waiting: int) -> None:
        self.app = app
        self.most_waiting = most_waiting
        self._waiting = 0
        self._turn_began: float | None = None
        self._in_turn = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with status 503."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self.app(scope, receive, send)
        elif self._waiting >= self.most_waiting:
            await _refuse(f"{self._waiting} requests are waiting already; try again in a moment.", scope, receive, send)
        elif self._is_late():
            await _refuse("More requests come than can be answered; try again in a moment.", scope, receive, send)
        else:
            await self._counted(scope, receive, send)

    def _is_late(self) -> bool:
        """Whether many requests that came together with this one have taken too long already."""
        loop = asyncio.get_running_loop()
        if self._turn_began is None:
            self._turn_began, self._in_turn = loop.time(), 0
            loop.call_soon(self._end_turn)  # behind all that has come by now
        self._in_turn += 1
        return self._in_turn > FEW and loop.time() - self._turn_began > TURN_SECONDS

    def _end_turn(self) -> None:
        self._turn_began = None

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


async def _refuse(said: str, scope: Scope, receive: Receive, send: Send) -> None:
    await error_answer(BusyError(said))(scope, receive, send)
