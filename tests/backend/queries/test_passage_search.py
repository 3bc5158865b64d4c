"""Experts that fire on a passage, compared with its routing."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.queries.passage_search import Firing, firings, ranked
from mxd.backend.schemas.search import PassageRequest
from mxd.trainer.inference.results import RoutedExpert, RoutedToken

RUN = "/api/runs/small"
TEXT = "the old fox sang"


def search(client: TestClient, **more: Any) -> dict[str, Any]:
    """Experts that fire on the text."""
    answer = client.post(f"{RUN}/search/passage", json={"text": TEXT, "limit": 200, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_results_equal_the_routing(live_client: TestClient) -> None:
    tokens = live_client.post(f"{RUN}/routing", json={"text": TEXT}).json()["tokens"]
    mass: dict[int, float] = {}
    for token in tokens:
        for expert in [] if token["start"] else token["experts"]:
            mass[expert["expert"]] = mass.get(expert["expert"], 0.0) + expert["activation"]
    found = search(live_client)
    assert {hit["expert"]: hit["mass"] for hit in found["hits"]} == {
        expert: pytest.approx(value) for expert, value in mass.items()
    }
    assert found["firing"] == found["matching"] == len(mass)
    assert [hit["mass"] for hit in found["hits"]] == sorted((hit["mass"] for hit in found["hits"]), reverse=True)
    assert [token["text"] for token in found["tokens"]] == [token["text"] for token in tokens]


def test_results_at_a_token_equal_its_experts(live_client: TestClient) -> None:
    tokens = live_client.post(f"{RUN}/routing", json={"text": TEXT}).json()["tokens"]
    found = search(live_client, position=2)
    assert {hit["expert"] for hit in found["hits"]} == {expert["expert"] for expert in tokens[2]["experts"]}
    assert all(hit["peak"] == 2 and hit["share"] == 1 for hit in found["hits"])
    answer = live_client.post(f"{RUN}/search/passage", json={"text": TEXT, "position": 999})
    assert answer.status_code == 400
    assert "Unknown token 999." in answer.json()["error"]["message"]


def test_filters_do_not_reduce_the_number_of_results(live_client: TestClient) -> None:
    whole = search(live_client, by="lift")
    densities = sorted(hit["density"] for hit in whole["hits"] if hit["density"])
    middle = densities[len(densities) // 2]
    kept = [hit["expert"] for hit in whole["hits"] if hit["density"] and hit["density"] >= middle]
    few = search(live_client, by="lift", min_density=middle, limit=3)
    assert [hit["expert"] for hit in few["hits"]] == kept[:3]
    assert few["matching"] == len(kept)
    found = [hit for hit in whole["hits"] if hit["lift"] is not None]
    assert all(hit["lift_low"] <= hit["lift"] <= hit["lift_high"] for hit in found)
    lows = [hit["lift_low"] for hit in found]
    assert lows == sorted(lows, reverse=True)


def test_the_start_token_counts_only_if_selected() -> None:
    start = RoutedToken(0, "", True, (RoutedExpert(5, 9.0, 1.0),))
    word = RoutedToken(1, "a", False, (RoutedExpert(6, 2.0, 0.5), RoutedExpert(7, 1.0, 0.5)))
    assert firings([start, word, word], None) == {6: [(1, 2.0), (2, 2.0)], 7: [(1, 1.0), (2, 1.0)]}
    assert firings([start, word, word], 0) == {5: [(0, 9.0)]}


def test_rare_experts_come_first_by_lift_and_unindexed_ones_last() -> None:
    often, rare, unknown = (
        Firing(expert, ((1, activation),), 4, density)
        for expert, activation, density in ((1, 9.0, 0.5), (2, 1.0, 0.001), (3, 20.0, None))
    )
    found = {firing.expert: firing for firing in (often, rare, unknown)}
    by_mass, by_lift = (ranked(found, PassageRequest(text="a", by=by)) for by in ("mass", "lift"))
    assert [firing.expert for firing in by_mass] == [3, 1, 2]
    assert [firing.expert for firing in by_lift] == [2, 1, 3]


def test_experts_active_on_many_tokens_come_before_a_single_token_of_a_rare_one() -> None:
    single = Firing(1, ((1, 1.0),), 40, 0.0005)
    steady = Firing(2, tuple((place, 1.0) for place in range(30)), 40, 0.02)
    assert (single.lift or 0) > (steady.lift or 0)
    assert [each.expert for each in ranked({1: single, 2: steady}, PassageRequest(text="a", by="lift"))] == [2, 1]
    assert Firing(3, ((1, 1.0),), 40, None).lift_interval is None
