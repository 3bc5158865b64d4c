"""Server-sent events: a stream that keeps idle connections open and closes its source when the client goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import Any

import anyio
from pydantic import BaseModel
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from backend.answers import json_of
from backend.errors import error_body, status_and_code, told_of
from backend.schemas import ErrorEvent

log = logging.getLogger(__name__)

PING = b": ping\n\n"
"""A comment, which clients ignore: proxies close connections on which nothing moves."""

Event = tuple[str, BaseModel | dict[str, Any]]
"""Name and data: a wire model, or plain data in the shape of one."""

Events = AsyncGenerator[Sequence[Event], None]
"""Those that come together travel together."""


def encode(name: str, data: BaseModel | dict[str, Any]) -> bytes:
    """One event as it goes over the wire; JSON has no line breaks of its own."""
    return b"event: " + name.encode() + b"\ndata: " + json_of(data) + b"\n\n"


class EventStream(StreamingResponse):
    """A response that sends events as they come.

    Args:
        events: closed as soon as the client has gone, wherever it is waiting.
        ping_seconds: how long nothing may be sent.
    """

    media_type = "text/event-stream"

    def __init__(self, events: Events, ping_seconds: float = 15.0) -> None:
        self._wire = _wire(events, ping_seconds)
        super().__init__(self._wire, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._wire.aclose()


async def _wire(events: Events, ping_seconds: float) -> AsyncGenerator[bytes, None]:
    upcoming: asyncio.Task[Sequence[Event] | None] | None = None
    try:
        while True:
            # A task of its own, because a wait that runs into the ping must not cancel the event that is being made.
            upcoming = upcoming or asyncio.create_task(_next(events))
            done, _ = await asyncio.wait({upcoming}, timeout=ping_seconds)
            if not done:
                yield PING
                continue
            finished, upcoming = upcoming, None
            failed = finished.exception()
            if failed is not None:
                error = told_of(failed)
                if status_and_code(error)[0] == HTTPStatus.INTERNAL_SERVER_ERROR:
                    log.error("A stream has failed", exc_info=error)
                yield encode("error", ErrorEvent(error=error_body(error)))
                return
            together = finished.result()
            if together is None:
                return
            yield b"".join(encode(*event) for event in together)
    finally:
        with anyio.CancelScope(shield=True):
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.wait({upcoming})
            await events.aclose()


async def _next(events: Events) -> Sequence[Event] | None:
    return await anext(events, None)


class EventStreamJson(JSONResponse):
    """Stands for ``EventStream`` in OpenAPI, where FastAPI says what is in a body for JSON responses alone."""

    media_type = EventStream.media_type


def documented(data: Any) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of a stream: the type of the data of one event, and that errors before it are JSON."""
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}}
    return {
        200: {"model": data, "description": "Server-sent events; this is the data of one of them."},
        "4XX": {"description": "The request cannot be served; the message says why.", **error},
        "5XX": {"description": "The server cannot answer now.", **error},
    }
