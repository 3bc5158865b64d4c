"""Co-activation against plain counting over the same sample."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from fastapi.testclient import TestClient

from mxd.backend.queries.coactivation import SHIFTS, CoactivationIndex, Shift
from tests.helpers.runs import World

EXPERTS, SEQUENCES, LENGTH = 12, 9, 7


@pytest.fixture(scope="module")
def active() -> list[list[int]]:
    """Experts on each token, sequence by sequence."""
    generator = np.random.default_rng(2)
    return [generator.choice(EXPERTS, generator.integers(0, 5), replace=False).tolist() for _ in range(63)]


@pytest.fixture(scope="module")
def sample(active: list[list[int]]) -> CoactivationIndex:
    return CoactivationIndex(
        np.arange(len(active)) % 5,
        np.arange(len(active)) % LENGTH == LENGTH - 1,
        np.array([len(experts) for experts in active]),
        np.array([expert for experts in active for expert in experts]),
        EXPERTS,
    )


@pytest.mark.parametrize("shift", SHIFTS)
def test_coactivations_are_counted_within_sequences(
    sample: CoactivationIndex, active: list[list[int]], shift: Shift
) -> None:
    for expert in range(EXPERTS):
        places = [
            place for place, experts in enumerate(active) if expert in experts and 0 <= place % LENGTH + shift < LENGTH
        ]
        counts = Counter(other for place in places for other in active[place + shift])
        if shift == 0:
            del counts[expert]
        found = sample.companions(expert, shift, EXPERTS)
        assert {one.expert: one.tokens for one in found} == {one: n for one, n in counts.items() if n >= 2}
        overlaps = [one.jaccard for one in found]
        assert overlaps == sorted(overlaps, reverse=True)
        for one in found:
            density = sum(one.expert in experts for experts in active) / len(active)
            assert one.share == pytest.approx(one.tokens / len(places))
            assert one.lift == pytest.approx(one.share / density)


def test_tokens_are_compared_by_cosine(sample: CoactivationIndex, active: list[list[int]]) -> None:
    vectors = np.zeros((EXPERTS, 5))
    for place, experts in enumerate(active):
        vectors[experts, place % 5] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for other, cosine in sample.by_tokens(3, EXPERTS):
        assert cosine == pytest.approx(vectors[3] @ vectors[other])
        assert other != 3


def test_coactivations_over_http(live_client: TestClient, fitted: World) -> None:
    detail = live_client.get("/api/runs/small/experts?sort=density&limit=1").json()["experts"][0]
    answer = live_client.get(f"/api/runs/small/experts/{detail['expert']}/coactivation").json()
    assert answer["sampled_tokens"] > 0
    assert answer["active_tokens"] > 0
    for by in ("tokens", "coactivation"):
        similar = live_client.get(f"/api/runs/small/experts/{detail['expert']}/similar?by={by}").json()
        assert similar["by"] == by
        assert all(0 < one["similarity"] <= 1 for one in similar["experts"])


def test_without_a_sample_there_are_no_coactivations(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/3/coactivation").json()
    assert answer == {"sampled_tokens": 0, "active_tokens": 0, "before": [], "same_token": [], "after": []}
