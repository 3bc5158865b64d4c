"""Prometheus metrics and the request log for operators.

Neither contains user input: paths are route templates, and queries, bodies and tokens are left out.
"""

from __future__ import annotations

import logging
import time
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
            "mxd_requests_refused_total", "Answers with status 429 or 503.", ("status",), registry=self.registry
        )
        self.live = Gauge("mxd_live_requests", "Routing and steering at work or waiting.", registry=self.registry)
        self.database = Gauge("mxd_database_bytes", "Bytes of the database on disk.", registry=self.registry)

    def page(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts and logs every request and assigns it an id."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request."""
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
        if status in (429, 503):
            self.metrics.refused.labels(str(status)).inc()
        logging.getLogger(REQUEST_LOG).info(
            "%s %s %s in %.1f ms",
            scope["method"],
            route,
            status,
            seconds * 1000,
            extra={
                "fields": {
                    "request_id": request_id,
                    "method": scope["method"],
                    "route": route,
                    "status": status,
                    "took_ms": round(seconds * 1000, 2),
                }
            },
        )


def route_template(scope: Scope) -> str:
    """Return the template of the matched route; a router below /api knows only its part of the path."""
    route = getattr(scope.get("route"), "path", None)
    if not isinstance(route, str) or not route:
        return OTHER
    return f"/api{route}" if scope["path"].startswith("/api/") and not route.startswith("/api/") else route
