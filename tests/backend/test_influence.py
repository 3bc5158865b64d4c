"""What is known of an expert's influence over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from tests.backend.stores import ACTIVE


def test_influence_comes_with_the_figures_of_its_control(client: TestClient) -> None:
    influence = client.get("/api/runs/first/experts/4/influence").json()["influence"]
    other = client.get(f"/api/runs/first/experts/{influence['other']}/influence").json()["influence"]
    assert influence["other"] == 5
    assert influence["other_added_loss"] == other["added_loss"] == -0.01
    assert influence["other_output_share"] == other["output_share"] > 0
    assert [token["change"] for token in influence["promoted"]] == [0.5, 0.25]
    assert all(token["text"] for token in influence["promoted"] + influence["suppressed"])


def test_what_is_not_measured_is_null_and_says_how(client: TestClient) -> None:
    answer = client.get(f"/api/runs/first/experts/{ACTIVE}/influence").json()
    assert answer == {"influence": None, "command": "mxd influence first"}
    row = client.get(f"/api/runs/first/experts/{ACTIVE}").json()["row"]
    assert not row["measured"] and row["added_loss"] == 0


def test_an_unknown_expert_is_refused(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/9999/influence")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "expert-not-found")
