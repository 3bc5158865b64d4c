"""The server's computing routes and streams on the pretend device, twice each: caches hold what was moved to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings

EDITS = [{"expert": 1, "mode": "add", "strength": 2.0}, {"expert": 2, "mode": "ablate"}]
TEXT = {"text": "old fox"}
CIRCUIT = {**TEXT, "runs": ["one", "two"], "nodes": 12}
SAMPLING = {"sampling": {"max_tokens": 4}}
ROUTES: dict[str, dict[str, Any] | None] = {
    "/api/runs/one/routing": {**TEXT, "others": ["two"]},
    "/api/runs/one/routing/predictions": {**TEXT, "others": ["two"]},
    "/api/runs/one/routing/effects": {**TEXT, "position": 2},
    "/api/runs/one/search/passage": TEXT,
    "/api/circuits": CIRCUIT,
    "/api/find": {"prompts": ["old"], "runs": ["one", "two"], "wanted": ["fox"]},
    "/api/runs/one/steering": {"prompt": "fox", "edits": EDITS, **SAMPLING},
    "/api/runs/one/steering/sweep": {"prompt": "fox", "edits": EDITS, "strengths": [0, 3], "control": 5, **SAMPLING},
    "/api/runs/one/contrast": {"a": {"documents": ["old fox", "a dog"] * 6}, "b": {"documents": ["the red sang"] * 12}},
    "/v1/completions": {"model": "one", "prompt": "fox", "max_tokens": 4},
    "/api/runs/one/experts/1/map": None,
    "/api/runs/one/experts/1/similar": None,
    "/api/runs/one/options": None,
    "/api/runs/one/comparison/two": None,
}


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[TestClient]:
    """A client of a server on the runs, with a language model that is split over both devices."""
    settings = Settings(data=runs / "data", frontend=runs / "dist", device="auto-map")
    with TestClient(create_app(settings)) as it:
        yield it


def succeeds(client: TestClient, path: str, body: dict[str, Any] | None) -> Any:
    """The answer's JSON, or the text of a stream without an error."""
    answer = client.get(path) if body is None else client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert '"event":"error"' not in answer.text.replace(" ", "")
    return answer.text if "event-stream" in answer.headers["content-type"] else answer.json()


@pytest.mark.parametrize("path", ROUTES)
def test_every_route(client: TestClient, path: str) -> None:
    assert succeeds(client, path, ROUTES[path])
    assert succeeds(client, path, ROUTES[path])


def test_effects_of_a_circuit(client: TestClient) -> None:
    graph = succeeds(client, "/api/circuits", CIRCUIT)["graph"]
    experts = [node for node in graph["nodes"] if node["kind"] == "expert"]
    groups = [[{name: node[name] for name in ("run", "expert", "position")}] for node in experts[:2]]
    asked = {**CIRCUIT, "groups": groups}
    assert succeeds(client, "/api/circuits/check", {**CIRCUIT, "graph": graph})
    assert len(succeeds(client, "/api/circuits/effects", asked)) == len(groups)


def test_a_completion_is_streamed(client: TestClient) -> None:
    body = {"model": "one", "prompt": "fox", "max_tokens": 4, "stream": True}
    assert "[DONE]" in succeeds(client, "/v1/completions", body)
