"""Server-sent events: streams that keep idle connections open and close their source when the client disconnects."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import anyio
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from mxd.backend.errors import answer_to
from mxd.backend.schemas.base import ErrorEvent, StepEvent, to_json_bytes

log = logging.getLogger(__name__)
PING = b": ping\n\n"
"""A comment, which clients ignore, because proxies close idle connections."""
Event = tuple[str, Any]
"""Event name, which may be empty, and data: a schema, a dataclass, plain data, or bytes without line breaks."""
Events = AsyncGenerator[Sequence[Event], None]
"""Batches of events that are sent together."""


def encode(name: str, data: Any) -> bytes:
    """Encode one event; its JSON contains no line breaks."""
    event = b"event: " + name.encode() + b"\n" if name else b""
    return event + b"data: " + (data if isinstance(data, bytes) else to_json_bytes(data)) + b"\n\n"


class EventStream(StreamingResponse):
    """A response that sends events as they are produced. ``ping_seconds``: longest time without sending anything.
    ``events`` is closed when the client disconnects, wherever it is waiting."""

    media_type = "text/event-stream"

    def __init__(self, events: Events, ping_seconds: float = 15.0) -> None:
        self._wire = _wire(events, ping_seconds)
        super().__init__(self._wire, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server stops: uvicorn would print a traceback for every open stream
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            with anyio.CancelScope(shield=True):
                await self._wire.aclose()


async def _wire(events: Events, ping_seconds: float) -> AsyncGenerator[bytes, None]:
    upcoming: asyncio.Future[Sequence[Event] | None] | None = None
    try:
        while True:
            # A separate task, because a timeout for the ping must not cancel the event in progress.
            upcoming = upcoming or asyncio.ensure_future(anext(events, None))
            done, _ = await asyncio.wait({upcoming}, timeout=ping_seconds)
            if not done:
                yield PING
                continue
            finished, upcoming = upcoming, None
            failed = finished.exception()
            if failed is not None:
                status, body, _ = answer_to(failed)
                if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                    log.error("A stream has failed", exc_info=failed)
                yield encode("error", ErrorEvent(error=body))
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


async def stream_steps(steps: AsyncGenerator[Sequence[Any], None]) -> EventStream:
    """Stream the events of each step together; their field ``event`` is their name. Errors before the first step become
    a status code, not an event."""
    first = await anext(steps)

    async def events() -> Events:
        async with aclosing(steps):
            yield [(event.event, event) for event in first]
            async for together in steps:
                yield [(event.event, event) for event in together]

    return EventStream(events())


async def stream_progress(steps: AsyncGenerator[Any, None], done: Callable[[Any], Any]) -> EventStream:
    """Stream the progress of a measurement, and what ``done`` makes of its result, in a thread."""

    async def events() -> AsyncGenerator[Sequence[Any], None]:
        async with aclosing(steps):
            async for step in steps:
                is_progress = isinstance(step, tuple)
                yield [StepEvent(done=step[0], total=step[1]) if is_progress else await asyncio.to_thread(done, step)]

    return await stream_steps(events())


class EventStreamJson(JSONResponse):
    """Response class for ``EventStream`` in OpenAPI, because FastAPI describes only JSON bodies."""

    media_type = EventStream.media_type


def streams(data: Any) -> dict[str, Any]:
    """Arguments of a route that streams: the data type of its events, and JSON errors before the stream starts."""
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}}
    responses = {
        200: {"model": data, "description": "Server-sent events; this is the data of one of them."},
        "4XX": {"description": "The request cannot be served; the message says why.", **error},
        "5XX": {"description": "The server cannot answer now.", **error},
    }
    return {"response_class": EventStreamJson, "responses": responses}
