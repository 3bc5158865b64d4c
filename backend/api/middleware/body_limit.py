"""Limit the size of request bodies."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxd.backend.errors import BodyTooLargeError
from mxd.backend.responses import response_to


class BodyLimitMiddleware:
    """Rejects a body by its announced length, or when more bytes arrive than allowed."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, or respond with status 413."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced[:20]) > self.most_bytes:
            await self._refuse(scope, receive, send)
            return
        await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        came, started = 0, False

        async def counting() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            # The application sees a disconnect; its response to that is not sent.
            return {"type": "http.disconnect"} if came > self.most_bytes else message

        async def send_wrapped(message: Message) -> None:
            nonlocal started
            if came <= self.most_bytes or started:
                started = True
                await send(message)

        try:
            await self.app(scope, counting, send_wrapped)
        except ClientDisconnect:
            if came <= self.most_bytes:
                raise
        if came > self.most_bytes and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await response_to(BodyTooLargeError(self._sentence))(scope, receive, send)

    @property
    def _sentence(self) -> str:
        return f"The request is larger than {self.most_bytes:,} bytes. Send a shorter text."
