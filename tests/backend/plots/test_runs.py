"""Figures: that they show what the database says, and say nothing of colours."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.plots import runs as figures
from mxd.backend.queries.runs import find_run
from tests.helpers.databases import ACTIVE

ALL = ("training", "density-activation", "density-histogram")


def figure(client: TestClient, name: str, **query: Any) -> dict[str, Any]:
    """A figure of the first run."""
    answer = client.get(f"/api/figures/{name}", params={"run": "first", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("name", ALL)
def test_every_figure_is_valid_and_without_colours(client: TestClient, name: str) -> None:
    found = figure(client, name)
    go.Figure(data=found["data"], layout=found["layout"])
    assert "color" not in json.dumps(found)
    assert "template" not in found["layout"]
    assert all("role" in trace["meta"] for trace in found["data"])


def test_training_has_a_curve_for_each_measure(client: TestClient) -> None:
    found = figure(client, "training")
    assert [trace["meta"]["role"] for trace in found["data"]] == ["normalized_mse", "dead_share", "l0"]
    assert found["data"][0]["y"] == [0.2, 0.1, pytest.approx(10 / 150)]
    assert found["layout"]["yaxis"]["type"] == "log"


def test_a_large_scatter_plot_is_sampled_with_a_note(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(own) as session:
        run = find_run(session, "first")
        whole = figures.density_activation(session, run)
        assert (whole.drawn, whole.total) == (ACTIVE, ACTIVE)
        monkeypatch.setattr(figures, "MAX_POINTS", 30)
        part = figures.density_activation(session, run)
        assert (part.drawn, part.total) == (30, ACTIVE)
        assert part == figures.density_activation(session, run)


def test_a_sample_keeps_outliers_and_labelled_experts(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(own) as session:
        run = find_run(session, "first")
        trace = json.loads(json.dumps(figures.density_activation(session, run).data[0]))
        density, (expert, _) = max(zip(trace["x"], trace["customdata"], strict=True))
        monkeypatch.setattr(figures, "MAX_POINTS", 40)
        part = json.loads(json.dumps(figures.density_activation(session, run).data[0]))
        assert expert in [each for each, _ in part["customdata"]]
        assert max(part["x"]) == density
        assert min(part["x"]) == min(trace["x"])


def test_a_cached_figure_follows_label_changes(own_client: TestClient) -> None:
    before = figure(own_client, "density-activation")
    own_client.patch("/api/runs/first/experts/3", json={"label": "foxes"})
    after = figure(own_client, "density-activation")
    assert [3, None] in before["data"][0]["customdata"]
    assert [3, "foxes"] in after["data"][0]["customdata"]


def test_the_density_histogram_counts_every_active_expert(client: TestClient) -> None:
    histogram = figure(client, "density-histogram")
    assert sum(histogram["data"][0]["y"]) == ACTIVE
    assert histogram["data"][0]["customdata"][-1][1] == 100, "densities are in percent"
    assert len(histogram["layout"]["shapes"]) == 1, "K/N is marked"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/figures/training", 400),
        ("/api/figures/density-activation?run=second", 404),
        ("/api/figures/pie?run=first", 422),
    ],
)
def test_figures_without_data_are_errors(client: TestClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status
