"""Middleware that every request passes, and logging: a limit on its body, security headers, metrics, the request log.

Neither metrics nor log contain user input: paths are route templates, and queries, bodies and tokens are left out."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxd.backend.errors import BodyTooLargeError, response_to
from mxd.backend.settings import LogFormat

OPEN_PATHS = frozenset({"/api/access"})
OPEN_BODY_BYTES = 4096
"""Largest body of a request that needs no token: a sign-in."""


class BodyLimitMiddleware:
    """Rejects a body by its announced length, or when more bytes arrive than allowed. The application starts when the
    body is complete, so a slow client occupies nothing but its connection."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app = app
        self.most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replaying() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, replaying, send)


async def _refuse(most: int, scope: Scope, receive: Receive, send: Send) -> None:
    response = response_to(BodyTooLargeError(f"The request is larger than {most:,} bytes. Send a shorter text."))
    response.headers["Connection"] = "close"  # the rest of the body is not read
    await response(scope, receive, send)


# Plotly and the component library set inline styles; there are no inline scripts.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeadersMiddleware:
    """Adds ``SECURITY_HEADERS`` to every response without buffering, so streams stay streams."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] == HTTPStatus.NO_CONTENT:
                    del headers["Content-Type"]  # FastAPI names one although there is no content
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


REQUEST_LOG = "mxd.requests"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CLIENT_GONE = 499
"""Status in metrics and log of a request whose client left before the response; it is not sent."""
OTHER = "other"
"""Label for addresses that match no route, so that clients cannot create label values."""


class Metrics:
    """Metrics of one application, in its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "mxd_request_seconds",
            "From a request to the end of its answer.",
            ("method", "route", "status"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.under_way = Gauge("mxd_requests_under_way", "Requests being answered.", registry=self.registry)
        self.refused = Counter(
            "mxd_requests_refused_total", "Answers with status 503.", ("status",), registry=self.registry
        )
        self.inference = Gauge("mxd_live_requests", "Routing and steering at work or waiting.", registry=self.registry)
        self.database = Gauge("mxd_database_bytes", "Bytes of the database on disk.", registry=self.registry)


class MetricsMiddleware:
    """Counts and logs every request and assigns it an id."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, request_id, status = time.perf_counter(), uuid4().hex[:12], CLIENT_GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        with self.metrics.under_way.track_inprogress():
            try:
                await self.app(scope, receive, noting)
            except Exception:
                status = 500
                raise
            finally:
                self._note(scope, status, time.perf_counter() - started, request_id)

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = route_template(scope)
        self.metrics.seconds.labels(scope["method"], route, str(status)).observe(seconds)
        if status == 503:
            self.metrics.refused.labels(str(status)).inc()
        fields: dict[str, Any] = {"request_id": request_id, "method": scope["method"], "route": route, "status": status}
        fields["took_ms"] = round(seconds * 1000, 2)
        message = "%(method)s %(route)s %(status)s in %(took_ms).1f ms"
        logging.getLogger(REQUEST_LOG).info(message, fields, extra={"fields": fields})


def route_template(scope: Scope) -> str:
    """Return the template of the matched route; a router below /api knows only its part of the path."""
    route = getattr(scope.get("route"), "path", None)
    if not isinstance(route, str) or not route:
        return OTHER
    return f"/api{route}" if scope["path"].startswith("/api/") and not route.startswith("/api/") else route


REPEATS_LOGGED = 5
"""Problems of one kind that are logged per period."""
PERIOD_SECONDS = 60.0
KINDS_REMEMBERED = 1_000


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON lines, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class RepetitionFilter(logging.Filter):
    """Drops problems that clients can cause again and again, so that they cannot fill the disk. The last record that
    passes in a period says so. Lines of the request log are not limited."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """Logger and message -> beginning of the current period, and records in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        key = (record.name, str(record.msg).partition("\n")[0][:200])
        began, count = self._kinds.get(key, (now, 0))
        if now - began > PERIOD_SECONDS:
            began, count = now, 0
        if key not in self._kinds and len(self._kinds) >= KINDS_REMEMBERED:
            self._kinds.clear()
        self._kinds[key] = began, count + 1
        if count + 1 == REPEATS_LOGGED:
            record.msg = f"{record.msg} (further ones are not logged for {PERIOD_SECONDS:.0f} s)"
        return count < REPEATS_LOGGED


def log_to_stderr(how: LogFormat) -> None:
    """Log to stderr: only problems, or every request too."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if how == "json" else plain)
    handler.addFilter(RepetitionFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(REQUEST_LOG).setLevel(logging.WARNING if how == "quiet" else logging.INFO)
