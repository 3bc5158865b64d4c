"""Repeated pages come from memory, until the database or the run changes."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.routes import experts as routes

PAGES = (
    "/api/runs/first/experts?sort=density",
    "/api/runs/first/experts/3",
    "/api/runs/first/experts/3/examples?bin=0",
)


@pytest.fixture
def own_client(own_client: TestClient) -> TestClient:
    """A client of a server that has the run in memory; before that, nothing is kept."""
    assert own_client.get("/api/runs/first/experts/1").status_code == 200
    return own_client


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_a_repeated_response_is_identical(own_client: TestClient, page: str, encoding: str) -> None:
    first, again = (own_client.get(page, headers={"Accept-Encoding": encoding}) for _ in range(2))
    assert (first.status_code, first.content) == (again.status_code, again.content)
    ids = {"x-request-id"}
    assert {name: value for name, value in first.headers.items() if name not in ids} == {
        name: value for name, value in again.headers.items() if name not in ids
    }
    assert first.headers["x-request-id"] != again.headers["x-request-id"]


def test_a_cached_response_needs_no_query(own_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = own_client.get(PAGES[1]).json()

    def fail(*_words: Any) -> Any:
        raise AssertionError("the page was made again")

    monkeypatch.setattr(routes, "expert_detail", fail)
    assert own_client.get(PAGES[1]).json() == wanted
    assert 'route="/api/runs/{run}/experts/{expert}",status="200"} 3.0' in own_client.get("/metrics").text


def test_a_new_label_invalidates_the_cache(own_client: TestClient) -> None:
    for label in ("foxes", "hounds"):
        own_client.put("/api/runs/first/experts/3/label", json={"label": label})
        for _ in range(2):
            assert own_client.get(PAGES[1]).json()["row"]["label"] == label


def test_errors_are_not_cached(own_client: TestClient) -> None:
    for _ in range(2):
        assert own_client.get("/api/runs/first/experts/9999").status_code == 404
        assert own_client.get("/api/runs/none/experts").status_code == 404
