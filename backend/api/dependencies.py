"""The services that routes use, and access: the host and the origin of a request, its token and the role that it needs.

A server on loopback requires no token. A server on any other address requires one for every API request. A web page can
make a browser on this machine send requests to loopback. It cannot choose the Host for an address that it does not own,
nor the headers in which browsers state the origin of a request.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from mxd.backend.api.middleware import OPEN_PATHS, Metrics
from mxd.backend.caches import StampedCache
from mxd.backend.database.annotations import digest, role_of
from mxd.backend.database.engine import WriteAccess, open_database, reading
from mxd.backend.errors import Coded, ForbiddenError, MisdirectedError, NotSignedInError, response_to
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import ChatFormatter, InferenceService
from mxd.backend.queries.coactivation import CoactivationIndex
from mxd.backend.queries.expert_table import RunCache
from mxd.backend.queries.runs import find_run
from mxd.backend.settings import Role, Settings, host_name, is_ip_address
from mxd.trainer.storage.database.engine import ConnectionConfig
from mxd.trainer.storage.database.tables import RunRecord

if TYPE_CHECKING:
    from mxd.backend.queries.matching import MatchedExperts

Params = ParamSpec("Params")
Result = TypeVar("Result")
SAME_SITE = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for our own pages and for typed addresses."""


def is_cross_site(method: str, headers: Headers) -> bool:
    """Return True if a page of another site sent the request; only browsers send such headers."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in SAME_SITE
    origin = headers.get("origin")
    return method not in READING_METHODS and origin is not None and urlsplit(origin).netloc != headers.get("host")


READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
READING_POSTS = (
    "/api/circuits",
    "/api/circuits/check",
    "/api/circuits/effects",
    "/api/runs/{run}/contrast",
    "/api/runs/{run}/routing",
    "/api/runs/{run}/routing/effects",
    "/api/runs/{run}/routing/predictions",
    "/api/runs/{run}/search/passage",
)
"""POST endpoints that change nothing. Every other POST, PUT, PATCH and DELETE needs ``write``."""
_READING_POST = re.compile("|".join(READING_POSTS).replace("{run}", "[^/]+"))

GUARDED = ("/api/", "/v1/", "/metrics")


def needed_role(method: str, path: str) -> Role | None:
    """Return the smallest sufficient role; None for public paths: sign-in, the pages and the API description."""
    if not path.startswith(GUARDED) or path in OPEN_PATHS:
        return None
    return "read" if method in READING_METHODS or _READING_POST.fullmatch(path) else "write"


COOKIE = "mxd_token"
BEARER = "bearer "
SECONDS_REMEMBERED = 5.0
"""Seconds for which a token's role is cached; a revoked token stops working after that."""
TOKENS_REMEMBERED = 1_000
LONGEST_TOKEN = 200


class Authenticator:
    """Looks up tokens in a database."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self.settings = settings
        self._database = database
        self._known: dict[str, tuple[Role, float]] = {}
        """Hash of a token -> its role, and the time until which the role is cached."""
        self._own_names = {socket.gethostname().lower(), *(name.lower() for name in settings.allowed_hosts)}

    def check_address(self, method: str, path: str, headers: Headers) -> None:
        """Check that a request is meant for this server."""
        name = host_name(headers.get("host", ""))
        # Under DNS rebinding a browser sends the attacker's name. An IP address cannot be rebound.
        if name != "localhost" and name not in self._own_names and not is_ip_address(name):
            raise MisdirectedError(
                f"Unknown host name: {name or '(none)'}. If it is this server's, add it to MXD_ALLOWED_HOSTS."
            )
        if path.startswith(("/api/", "/v1/")) and is_cross_site(method, headers):
            raise ForbiddenError("Cross-site requests are not allowed. Open the server's own dashboard.")

    async def check_access(self, method: str, path: str, headers: Headers) -> None:
        """Check token and role. Without tokens, every request passes."""
        needed = needed_role(method, path)
        if not self.settings.requires_tokens or needed is None:
            return
        role = await self.role(token_from(headers))
        if role is None:
            raise NotSignedInError("A token is required. Sign in with a token from: mxd token create")
        if role == "read" and needed == "write":
            raise ForbiddenError("This token has the role read. Sign in with a token of the role write.")

    async def role(self, token: str) -> Role | None:
        """Return the role of a token, cached for a few seconds."""
        if not 0 < len(token) <= LONGEST_TOKEN:
            return None
        key, now = digest(token), time.monotonic()
        known = self._known.get(key)
        if known is not None and now < known[1]:
            return known[0]

        def look_up() -> Role | None:
            with Session(self._database) as session:
                return role_of(session, token)

        role = await asyncio.to_thread(look_up)
        if role is None:
            self._known.pop(key, None)
            return None
        if len(self._known) >= TOKENS_REMEMBERED:
            self._known.clear()
        self._known[key] = role, now + SECONDS_REMEMBERED
        return role


class AuthMiddleware:
    """Rejects requests with a foreign Host or Origin, or without a valid token."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        authenticator: Authenticator = scope["app"].state.services.authenticator
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        try:
            authenticator.check_address(method, path, headers)
            await authenticator.check_access(method, path, headers)
        except (Coded, DBAPIError, PoolTimeoutError) as error:  # also of the database of the tokens
            await response_to(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def token_from(headers: Headers) -> str:
    """Return the token from ``Authorization: Bearer`` or the sign-in cookie; empty if there is none."""
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(BEARER):
        return authorization[len(BEARER) :].strip()
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


READ_SECONDS = 5.0
"""Longest wait of a request that reads for a connection or a lock."""
MAX_DOWNLOADS = 4
"""Downloads, each of a file of its own, at the same time."""


class Services:
    """Services of all routes, created once at start-up."""

    def __init__(self, settings: Settings) -> None:
        """Open the database, so that its errors appear at start-up, as UserError."""
        self.settings = settings
        self.runs = RunLoader(settings.data, settings.runs_in_memory)
        self.database = open_database(
            settings.database_url,
            ConnectionConfig(
                pool_seconds=READ_SECONDS, lock_seconds=READ_SECONDS, statement_seconds=settings.statement_seconds
            ),
        )
        """For reading."""
        self.writes = WriteAccess(settings.database_url, settings.write_seconds, settings.statement_seconds)
        self.inference = InferenceService(settings, self.runs)
        self.chats = ChatFormatter(self.runs)
        self.run_cache = RunCache(self.database)
        self.coactivation = StampedCache[CoactivationIndex]()
        self.matches: StampedCache[MatchedExperts] = StampedCache()
        self.figures = StampedCache[bytes](capacity=16)
        self.downloads = BoundedSemaphore(MAX_DOWNLOADS)
        self.rng = random.Random()
        self.authenticator = Authenticator(settings, self.database)
        self.metrics = Metrics()

    @contextmanager
    def reading(self, run: str) -> Iterator[tuple[Session, RunRecord]]:
        """Yield a session that sees one snapshot of the database, and the record of a run in it."""
        with reading(self.database) as session:
            yield session, find_run(session, run)

    async def read(
        self,
        run: str,
        query: Callable[Concatenate[Session, RunRecord, Params], Result],
        *args: Params.args,
        **keywords: Params.kwargs,
    ) -> Result:
        """Return the result of a query about a run, made in a thread."""

        def in_thread() -> Result:
            with self.reading(run) as (session, record):
                return query(session, record, *args, **keywords)

        return await asyncio.to_thread(in_thread)

    def close(self) -> None:
        self.inference.close()
        self.chats.close()
        self.run_cache.close()
        self.writes.close()
        self.database.dispose()


async def services(request: Request) -> Services:
    # Async, because FastAPI would run a plain function in a thread per request.
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(services)]


async def writer(services: ServicesDep) -> AsyncIterator[Engine]:
    """Yield an engine to write with, when it is the request's turn."""
    async with services.writes.turn() as engine:
        yield engine


# The turn ends with the handler, not when the client has read the response.
WriterDep = Annotated[Engine, Depends(writer, scope="function")]
RunName = Annotated[str, Path(max_length=200, description="Name of the run.")]
ExpertId = Annotated[int, Path(ge=0, lt=2**31, description="Id of the expert.")]
