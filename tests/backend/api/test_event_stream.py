"""Work for clients that have disconnected is cancelled."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message

from mxd.backend.api.app import create_app
from mxd.backend.api.dependencies import Services
from mxd.backend.settings import Settings
from mxd.trainer.analysis import effects
from mxd.trainer.analysis.circuits import tracing
from mxd.trainer.inference import routing
from tests.helpers.runs import World

ROUTING = "/api/runs/small/routing"


class Asking:
    """One request of a client that can leave."""

    def __init__(self, app: FastAPI, path: str, body: dict[str, Any], accept: str = "*/*") -> None:
        self.left = asyncio.Event()
        self.sent: list[Message] = []
        self._parts: list[Message] = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"accept", accept.encode()),
        ]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        more = {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}
        self.answered = asyncio.ensure_future(app({**scope, **more, "root_path": ""}, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._parts:
            return self._parts.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def status(self) -> int:
        await asyncio.wait_for(self.answered, 20)
        return int(self.sent[0]["status"])


@pytest.fixture
def app(fitted: World) -> Iterator[FastAPI]:
    it = create_app(Settings(data=fitted.data, device="cpu"))
    yield it
    services: Services = it.state.services
    services.inference.close()
    services.database.dispose()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (ROUTING, {}),
        (f"{ROUTING}/predictions", {}),
        (f"{ROUTING}/effects", {"position": 1}),
        (ROUTING, {"others": ["small"]}),
    ],
)
def test_superseded_routings_are_skipped(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, path: str, more: dict[str, Any]
) -> None:
    begun, go_on, texts = threading.Event(), threading.Event(), []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(language_model: Any, run: Any, ids: list[int], *words: Any) -> Any:
            texts.append(language_model.tokenizer.decode(ids[1:]))
            begun.set()
            assert go_on.wait(20)
            return original(language_model, run, ids, *words)

        return noted

    for module, name in ((routing, "route_together"), (routing, "predict"), (effects, "direct_effects")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))

    async def type_quickly() -> None:
        first = Asking(app, ROUTING, {"text": "the old fox"})
        assert await asyncio.to_thread(begun.wait, 20)
        superseded = [Asking(app, path, {"text": f"the old fox {i}", **more}) for i in range(3)]
        engine = app.state.services.inference
        while engine.num_active < 4:
            await asyncio.sleep(0.01)
        for asking in superseded:
            asking.left.set()
        assert [await asking.status() for asking in superseded] == [499] * 3
        assert engine.num_active == 1
        newest = Asking(app, ROUTING, {"text": "the old dog"})
        go_on.set()
        assert [await first.status(), await newest.status()] == [200, 200]

    asyncio.run(type_quickly())
    assert texts == ["the old fox", "the old dog"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_disconnecting_cancels_tracing(accept: str, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_lm: Any, _runs: Any, _config: Any, callbacks: Any, _ids: Any) -> None:
        begun.set()
        try:
            for _ in range(2000):
                callbacks.check_cancelled()
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr(tracing, "trace", endless)

    async def leave() -> None:
        asking = Asking(app, "/api/circuits", {"runs": ["small"], "text": "the old fox"}, accept)
        assert await asyncio.to_thread(begun.wait, 20)
        asking.left.set()
        assert await asking.status() == 499
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(leave())
