"""Contexts and co-active experts over HTTP: paging, packed columns, plain counting."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from mxd.backend.queries.coactivation import MIN_EVENTS, SHIFTS, CoactivationIndex, Shift
from mxd.backend.queries.examples import active_in
from mxd.trainer.storage.database.column_types import ACTIVE, PackedActive
from mxd.trainer.utils.bootstrap import wilson_interval
from tests.helpers.databases import PER_EXPERT, SENTENCES
from tests.helpers.language_models import byte_tokenizer
from tests.helpers.runs import World

PATH = "/api/runs/first/experts/9/examples"


def all_contexts(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get(PATH, params={**query, **({"cursor": cursor} if cursor else {})}).json()
        found += page["examples"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, PER_EXPERT, 100])
def test_pages_contain_all_examples_in_order(client: TestClient, limit: int) -> None:
    found = all_contexts(client, limit=limit)
    places = [(context["bin"], context["rank"]) for context in found]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


def test_examples_of_one_bin(client: TestClient) -> None:
    assert {context["bin"] for context in all_contexts(client, bin=1, limit=2)} == {1}
    assert all_contexts(client, bin=2) == []


def test_tokens_are_those_of_the_sequence_and_the_peak_is_active(client: TestClient) -> None:
    for context in all_contexts(client):
        sentence = SENTENCES[context["sequence"]]
        assert context["token_ids"] == byte_tokenizer()(sentence)["input_ids"][:16]
        assert "".join(context["tokens"]) == sentence[:16]
        assert len(context["tokens"]) == len(context["token_ids"])
        assert [context["position"], context["activation"], 2] in context["active"]


tokens = st.tuples(st.integers(0, 2**16 - 1), st.floats(2.0**-60, 2.0**60, width=32), st.integers(0, 2**16 - 1))


@given(st.lists(tokens, max_size=20))
def test_packed_tokens_round_trip(values: list[tuple[int, float, int]]) -> None:
    values = sorted(values, key=lambda value: value[0])  # by position, as they are written
    packed = PackedActive().process_bind_param(np.array(values, ACTIVE).tobytes(), sqlite.dialect())
    assert packed is not None
    found = active_in(packed)
    assert [(position, rank) for position, _, rank in found] == [(position, rank) for position, _, rank in values]
    assert [activation for _, activation, _ in found] == pytest.approx([value for _, value, _ in values], rel=1e-6)


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
    sample: CoactivationIndex, active: list[list[int]], shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mxd.backend.queries.coactivation.MIN_EVENTS", len(active))
    for expert in range(EXPERTS):
        places = [
            place for place, experts in enumerate(active) if expert in experts and 0 <= place % LENGTH + shift < LENGTH
        ]
        counts = Counter(other for place in places for other in active[place + shift])
        if shift == 0:
            del counts[expert]
        found = sample.companions(expert, shift, EXPERTS)
        assert {one.expert: one.shared.tokens for one in found} == {one: n for one, n in counts.items() if n >= 2}
        assert {one.shared.of_tokens for one in found} <= {len(places)}
        overlaps = [one.jaccard for one in found]
        assert overlaps == sorted(overlaps, reverse=True)
        assert all(
            one.shared.share is None and one.shared.share_interval is None and one.shared.lift is None for one in found
        )


def pair(both: int, alone: int, other: int) -> CoactivationIndex:
    """Expert 0 on ``both + alone`` of 1,000 tokens; expert 1 on ``both`` of these and on ``other`` more."""
    active = [[0, 1]] * both + [[0]] * alone + [[1]] * other
    active += [[2]] * (1000 - len(active))
    experts = [expert for tokens in active for expert in tokens]
    return CoactivationIndex(
        np.zeros(1000, np.int64), np.arange(1000) == 999, np.array([len(each) for each in active]), np.array(experts), 3
    )


def test_shares_need_enough_active_tokens() -> None:
    (few,) = pair(both=10, alone=MIN_EVENTS - 11, other=0).companions(0, 0, 3)
    assert (few.shared.tokens, few.shared.of_tokens, few.shared.share, few.shared.share_interval, few.shared.lift) == (
        10,
        MIN_EVENTS - 1,
        None,
        None,
        None,
    )
    (enough,) = pair(both=10, alone=MIN_EVENTS - 10, other=0).companions(0, 0, 3)
    assert enough.shared.share == pytest.approx(10 / MIN_EVENTS)
    assert enough.shared.share_interval == wilson_interval(10 / MIN_EVENTS, MIN_EVENTS)
    assert enough.shared.lift == pytest.approx(10 / MIN_EVENTS / 0.01)


def test_companions_are_active_more_often_than_elsewhere() -> None:
    assert pair(both=50, alone=50, other=100).companions(0, 0, 3)[0].expert == 1
    assert pair(both=50, alone=50, other=450).companions(0, 0, 3) == []  # on half of all tokens as well


def test_tokens_are_compared_by_cosine(sample: CoactivationIndex, active: list[list[int]]) -> None:
    vectors = np.zeros((EXPERTS, 5))
    for place, experts in enumerate(active):
        vectors[experts, place % 5] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for other, cosine in sample.by_tokens(3, EXPERTS).experts:
        assert cosine == pytest.approx(vectors[3] @ vectors[other])
        assert other != 3


def test_coactivations_over_http(live_client: TestClient, fitted: World) -> None:
    detail = live_client.get("/api/runs/small/experts?sort=density&limit=1").json()["experts"][0]
    answer = live_client.get(f"/api/runs/small/experts/{detail['expert']}/similar?by=coactivation").json()
    assert answer["sampled_tokens"] > 0
    assert answer["active_tokens"] > 0
    for by in ("tokens", "coactivation"):
        similar = live_client.get(f"/api/runs/small/experts/{detail['expert']}/similar?by={by}").json()
        assert similar["by"] == by
        assert similar["active_tokens"] == answer["active_tokens"]
        assert similar["enough_tokens"] == answer["enough_tokens"] == (answer["active_tokens"] >= MIN_EVENTS)
        assert all(0 < one["similarity"] <= 1 for one in similar["experts"])


def test_without_a_sample_there_are_no_coactivations(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/3/similar?by=coactivation").json()
    assert (answer["sampled_tokens"], answer["active_tokens"], answer["enough_tokens"]) == (0, 0, False)
    assert answer["before"] == answer["experts"] == answer["after"] == []
