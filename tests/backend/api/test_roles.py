"""The role that each endpoint needs; a new endpoint must be added here."""

from __future__ import annotations

from mxd.backend.api.access import needed_role
from mxd.backend.api.app import build_api

READ_WITH_A_BODY = {
    "/api/runs/{run}/routing",
    "/api/runs/{run}/routing/effects",
    "/api/runs/{run}/routing/predictions",
    "/api/runs/{run}/search/passage",
    "/api/circuits",
    "/api/circuits/check",
    "/api/circuits/effects",
    "/api/circuits/graph",
    "/api/runs/{run}/contrast",
}
"""POST that changes nothing and is within limits of its own."""
ANYBODY = {"/api/access"}


def test_every_endpoint_needs_a_role() -> None:
    for path, operations in build_api().openapi()["paths"].items():
        for method in operations:
            reads = method in ("get", "head") or path in READ_WITH_A_BODY
            expected = None if path in ANYBODY else "read" if reads else "write"
            assert needed_role(method.upper(), path) == expected, f"{method} {path}"


def test_pages_and_the_api_description_need_no_role() -> None:
    for path in ("/", "/assets/main.js", "/docs", "/openapi.json", "/healthz"):
        assert needed_role("GET", path) is None
    assert needed_role("GET", "/metrics") == "read"
    assert needed_role("GET", "/api/none") == "read"
