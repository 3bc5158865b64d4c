"""Bodies of requests: refused as soon as they are larger than any request of ours could be."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.answers import error_answer
from backend.errors import BodyTooLargeError


class BodyLimit:
    """Middleware that refuses a body by its announced length, or once more has come than may."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with status 413."""
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
            # To the application the client is gone: what it says to that is not sent.
            return {"type": "http.disconnect"} if came > self.most_bytes else message

        async def watching(message: Message) -> None:
            nonlocal started
            if came <= self.most_bytes or started:
                started = True
                await send(message)

        try:
            await self.app(scope, counting, watching)
        except ClientDisconnect:
            if came <= self.most_bytes:
                raise
        if came > self.most_bytes and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await error_answer(BodyTooLargeError(self._sentence))(scope, receive, send)

    @property
    def _sentence(self) -> str:
        return f"The request is larger than {self.most_bytes:,} bytes; send a shorter text."
