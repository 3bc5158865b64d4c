"""Keep the responses of pages that are opened again and again, for as long as nothing that they show has changed."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from mxd.backend.api.dependencies import Services

CACHED = re.compile(r"^/api/runs/([^/]{1,200})/experts(/\d+(/examples|/similar|/coactivation|/ablation)?)?$")
"""Addresses whose responses depend only on the database and on the files of the run."""
MAX_BYTES = 32 * 2**20
MAX_RESPONSE_BYTES = 256 * 1024


@dataclass(frozen=True)
class _Kept:
    """A response with status 200."""

    start: Message
    body: bytes
    route: Any
    """Matched route, for the metrics."""


class ResponseCacheMiddleware:
    """Answers repeated requests from memory, without routing, SQL or compression.

    The key contains the version of the database and the fingerprint of the run's files. Where the version is not at
    hand, as in PostgreSQL, nothing is kept.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._state: Hashable = None
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the kept response, or let the application make one."""
        key = None
        if scope["type"] == "http" and scope["method"] == "GET" and (address := CACHED.match(scope["path"])):
            # In a thread: it asks the database for its version and the file system for times of change.
            key = await asyncio.to_thread(self._key, scope, address[1])
        if key is None:
            await self.app(scope, receive, send)
            return
        if key[0] != self._state:
            self._kept.clear()
            self._state, self._bytes = key[0], 0
        response = self._kept.get(key)
        if response is None:
            await self._recorded(key, scope, receive, send)
            return
        self._kept.move_to_end(key)
        scope["route"] = response.route
        await send({**response.start, "headers": list(response.start["headers"])})
        await send({"type": "http.response.body", "body": response.body})

    def _key(self, scope: Scope, run: str) -> tuple[Hashable, ...] | None:
        services: Services = scope["app"].state.services
        if not services.run_cache.is_quick or not services.run_cache.is_cached(run):
            return None
        version = services.run_cache.version()
        compressed = any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
        return (version, services.library.fingerprint(run), scope["path"], scope["query_string"], compressed)

    async def _recorded(self, key: Hashable, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}
        parts: list[bytes] = []
        is_whole = False

        async def recording(message: Message) -> None:
            nonlocal start, is_whole
            if message["type"] == "http.response.start":
                # A copy: the middleware outside adds headers of this one request.
                start = {**message, "headers": list(message["headers"])}
            else:
                parts.append(message.get("body", b""))
                is_whole = not message.get("more_body", False)
            await send(message)

        await self.app(scope, receive, recording)
        body = b"".join(parts)
        if is_whole and start["status"] == 200 and len(body) <= MAX_RESPONSE_BYTES:
            self._keep(key, _Kept(start, body, scope.get("route")))

    def _keep(self, key: Hashable, response: _Kept) -> None:
        assert isinstance(key, tuple)
        if key[0] != self._state or key in self._kept:
            return  # the database has changed meanwhile, or another request was faster
        self._kept[key] = response
        self._bytes += len(response.body)
        while self._bytes > MAX_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1].body)
