"""Ablation effects of an expert over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from tests.helpers.databases import ACTIVE


def test_effects_include_those_of_the_random_expert(client: TestClient) -> None:
    ablation = client.get("/api/runs/first/experts/4/ablation").json()["ablation"]
    other = client.get(f"/api/runs/first/experts/{ablation['random_expert']}/ablation").json()["ablation"]
    assert ablation["random_expert"] == 5
    assert ablation["random_loss_increase"] == other["loss_increase"] == -0.01
    assert ablation["random_output_share"] == other["output_share"] > 0
    assert [token["change"] for token in ablation["promoted"]] == [0.5, 0.25]
    assert all(token["text"] for token in ablation["promoted"] + ablation["suppressed"])


def test_unmeasured_effects_are_null_with_the_command_that_measures_them(client: TestClient) -> None:
    answer = client.get(f"/api/runs/first/experts/{ACTIVE}/ablation").json()
    assert answer == {"ablation": None, "command": "mxd ablate first"}
    row = client.get(f"/api/runs/first/experts/{ACTIVE}").json()["row"]
    assert row["loss_increase"] is None and row["output_share"] is None


def test_an_unknown_expert_is_an_error(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/9999/ablation")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "expert-not-found")
