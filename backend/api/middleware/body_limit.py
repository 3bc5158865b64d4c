"""Read each request's body before the application runs, up to a limit."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxd.backend.api.middleware.roles import OPEN_PATHS
from mxd.backend.errors import BodyTooLargeError
from mxd.backend.responses import response_to

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
