"""An overloaded server rejects requests immediately and recovers when the load falls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from mxd.backend.api.app import create_app
from mxd.backend.api.middleware.limits import FEW, TURN_SECONDS, LoadSheddingMiddleware
from mxd.backend.inference.service import SECONDS_PER_UNKNOWN_REQUEST
from mxd.backend.settings import Settings

MOST = 3


class Slow:
    """An application whose responses start and end when the test says so."""

    def __init__(self) -> None:
        self.begin, self.end = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await self.begin.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.end.wait()
        await send({"type": "http.response.body", "body": b""})


async def status(
    app: Callable[[Scope, Receive, Send], Awaitable[None]], path: str = "/api/runs", server: FastAPI | None = None
) -> Message:
    """Return the start of the response to a request that ``server`` passes to ``app``."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "path": path, "app": server}, receive, send)
    return sent[0]


async def crowd(count: int, app: LoadSheddingMiddleware) -> list[asyncio.Task[Message]]:
    asked = [asyncio.create_task(status(app)) for _ in range(count)]
    await asyncio.sleep(0)
    return asked


def test_requests_above_the_limit_are_rejected_with_retry_after() -> None:
    async def check() -> None:
        slow = Slow()
        app = LoadSheddingMiddleware(slow, MOST)
        waiting = await crowd(MOST, app)
        refused = await status(app)
        assert refused["status"] == 503
        assert b"retry-after" in dict(refused["headers"])
        slow.begin.set()
        slow.end.set()
        assert [answer["status"] for answer in await asyncio.gather(*waiting)] == [200] * MOST
        assert (await status(app))["status"] == 200

    asyncio.run(check())


def test_a_burst_is_told_to_wait_for_the_requests_that_came_first(tmp_path: Path) -> None:
    server = create_app(Settings(data=tmp_path, device="cpu"))
    path, most = "/api/runs/x/steering", 100

    async def check() -> None:
        slow = Slow()
        app = LoadSheddingMiddleware(slow, most)
        waiting = [asyncio.create_task(status(app, path, server)) for _ in range(most)]
        await asyncio.sleep(0)
        refused = await status(app, path, server)
        assert refused["status"] == 503
        assert int(dict(refused["headers"])[b"retry-after"]) >= most * SECONDS_PER_UNKNOWN_REQUEST / 2
        slow.begin.set()
        slow.end.set()
        await asyncio.gather(*waiting)

    asyncio.run(check())
    server.state.services.live.close()
    server.state.services.database.dispose()


def test_a_started_stream_frees_its_slot() -> None:
    async def check() -> None:
        slow = Slow()
        app = LoadSheddingMiddleware(slow, MOST)
        slow.begin.set()
        streams = await crowd(10 * MOST, app)
        assert not any(stream.done() and stream.result()["status"] != 200 for stream in streams)
        slow.end.set()
        assert [answer["status"] for answer in await asyncio.gather(*streams)] == [200] * 10 * MOST

    asyncio.run(check())


def test_health_is_always_answered_and_failures_free_their_slots() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError

    async def check() -> None:
        app = LoadSheddingMiddleware(failing, 1)
        for _ in range(3):
            (failed,) = await asyncio.gather(status(app), return_exceptions=True)
            assert isinstance(failed, RuntimeError)
        slow = Slow()
        busy = LoadSheddingMiddleware(slow, 1)
        (waiting,) = await crowd(1, busy)
        slow.begin.set()
        slow.end.set()
        assert (await status(busy, "/api/health"))["status"] == 200
        await waiting

    asyncio.run(check())


class Paused:
    """An application that holds up everybody, once."""

    def __init__(self) -> None:
        self.seconds = 1.1 * TURN_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        time.sleep(self.seconds)
        self.seconds = 0
        await send({"type": "http.response.start", "status": 200, "headers": []})


def test_a_request_behind_a_full_queue_is_rejected() -> None:
    async def check() -> None:
        app = LoadSheddingMiddleware(Paused(), 100)
        together = await asyncio.gather(*(status(app) for _ in range(FEW + 5)))
        assert [answer["status"] for answer in together] == [200] * FEW + [503] * 5
        for _ in range(3):
            await asyncio.sleep(0)
            assert (await status(app))["status"] == 200

    asyncio.run(check())


def test_requests_with_their_own_queue_are_not_limited() -> None:
    async def check() -> None:
        app = LoadSheddingMiddleware(Paused(), 100)
        path = "/api/runs/x/steering"
        together = await asyncio.gather(*(status(app, path) for _ in range(FEW + 5)))
        assert [answer["status"] for answer in together] == [200] * (FEW + 5)

    asyncio.run(check())


def test_a_short_queue_is_answered_after_a_pause() -> None:
    async def check() -> None:
        app = LoadSheddingMiddleware(Paused(), 100)
        answers = await asyncio.gather(*(status(app) for _ in range(FEW)))
        assert [answer["status"] for answer in answers] == [200] * FEW

    asyncio.run(check())
