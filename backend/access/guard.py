"""The guard at the door: the right host, the right page, a token where one is needed, and not too often."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.access.origin import is_from_elsewhere, is_own_host
from backend.access.rates import Rates
from backend.access.roles import READING_METHODS, allows, needed_role
from backend.access.tokens import digest, role_of
from backend.addresses import host_name
from backend.answers import error_answer
from backend.errors import ForbiddenError, MisdirectedError, NotSignedInError, TooManyRequestsError, told_of
from backend.settings import Role, Settings

COOKIE = "mxd_token"
BEARER = "bearer "
SECONDS_REMEMBERED = 5.0
"""For which the role of a token is not looked up again; a revoked one opens nothing after that."""
TOKENS_REMEMBERED = 1_000
LONGEST_TOKEN = 200


@dataclass(frozen=True)
class _Known:
    role: Role
    until: float


class Doorkeeper:
    """Knows the tokens of a store and how often each client has asked."""

    def __init__(self, settings: Settings, store: Engine) -> None:
        self.settings = settings
        self._store = store
        self._known: dict[str, _Known] = {}
        self._own_names = {socket.gethostname().lower(), *(name.lower() for name in settings.allowed_hosts)}
        self._browsing = Rates(settings.browse_rate)
        self._computing = Rates(settings.compute_rate)
        self._signing_in = Rates(settings.sign_in_rate)

    def check_address(self, method: str, path: str, headers: Headers) -> None:
        """Refuse what was not meant for this server.

        Raises:
            MisdirectedError: the Host is a name that is not this server's.
            ForbiddenError: a page of another site asks.
        """
        name = host_name(headers.get("host", ""))
        if not is_own_host(name, self._own_names):
            raise MisdirectedError(
                f"This server is not known as {name or 'that'}; add the name to MXD_ALLOWED_HOSTS if it is right."
            )
        if path.startswith("/api/") and is_from_elsewhere(method, headers):
            raise ForbiddenError("A page of another site may not ask this server; open its own dashboard.")

    async def check_access(self, method: str, path: str, headers: Headers, client: str) -> None:
        """Refuse who has no token of the right role, or asks too often. Without tokens, everything may go on.

        Raises:
            NotSignedInError: there is no token, or one that is not in use.
            ForbiddenError: its role is too small.
            TooManyRequestsError: this client has asked too often just now.
        """
        needed = needed_role(method, path)
        if not self.settings.requires_tokens or needed is None:
            return
        token = token_of(headers)
        role = await self.role(token)
        if role is None:
            if token:  # to have none is no attempt at one
                self._count(self._signing_in, client)
            raise NotSignedInError("A token is needed; sign in with one that mxd token create has printed.")
        self._count(self._browsing if method in READING_METHODS else self._computing, digest(token))
        if not allows(role, needed):
            raise ForbiddenError("This token may only read; sign in with one whose role is write.")

    def count_sign_in(self, client: str) -> None:
        """Count an attempt to sign in.

        Raises:
            TooManyRequestsError: there were too many from this address just now.
        """
        self._count(self._signing_in, client)

    async def role(self, token: str) -> Role | None:
        """The role of a token, from memory where it was looked up just now."""
        if not 0 < len(token) <= LONGEST_TOKEN:
            return None
        key, now = digest(token), time.monotonic()
        known = self._known.get(key)
        if known is not None and now < known.until:
            return known.role
        role = await asyncio.to_thread(self._look_up, token)
        if role is None:
            self._known.pop(key, None)
            return None
        if len(self._known) >= TOKENS_REMEMBERED:
            self._known.clear()
        self._known[key] = _Known(role, now + SECONDS_REMEMBERED)
        return role

    def _look_up(self, token: str) -> Role | None:
        with Session(self._store) as session:
            return role_of(session, token)

    @staticmethod
    def _count(rates: Rates, client: str) -> None:
        seconds = rates.wait(client)
        if seconds:
            raise TooManyRequestsError("Too many requests came from you just now; wait a moment.", seconds)


class Guard:
    """Middleware that lets the application's doorkeeper look at every request before anything else does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with the doorkeeper's refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        doorkeeper: Doorkeeper = scope["app"].state.services.doorkeeper
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        try:
            doorkeeper.check_address(method, path, headers)
            await doorkeeper.check_access(method, path, headers, client_address(scope))
        except (MisdirectedError, ForbiddenError, NotSignedInError, TooManyRequestsError) as error:
            await error_answer(error)(scope, receive, send)
            return
        except DBAPIError as error:  # the store, which has the tokens
            told = told_of(error)
            if told is error:
                raise
            await error_answer(told)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def client_address(scope: Scope) -> str:
    """The address that asks; empty where the connection has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def token_of(headers: Headers) -> str:
    """The token in ``Authorization: Bearer`` or in the cookie of who has signed in; empty where there is none."""
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(BEARER):
        return authorization[len(BEARER) :].strip()
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
