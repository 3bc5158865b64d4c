"""Contexts and co-active experts over HTTP: paging, packed columns, plain counting."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from mxd.backend.queries.coactivation import MIN_EVENTS, SHIFTS, CoactivationIndex, Companion, Shift
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
def test_pages_contain_all_examples_in_order_with_the_tokens_of_their_sequences(client: TestClient, limit: int) -> None:
    found = all_contexts(client, limit=limit)
    places = [(context["bin"], context["rank"]) for context in found]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert all_contexts(client, bin=1, limit=limit) == found[4:]
    assert all_contexts(client, bin=2) == []
    for context in found:
        sentence = SENTENCES[context["sequence"]]
        assert context["token_ids"] == byte_tokenizer()(sentence)["input_ids"][:16]
        assert "".join(context["tokens"]) == sentence[:16]
        assert [context["position"], context["activation"], 2] in context["active"]


EXPERTS, SEQUENCES, LENGTH = 12, 9, 7


@pytest.fixture(scope="module")
def active() -> list[list[int]]:
    """Experts on each token, sequence by sequence."""
    generator = np.random.default_rng(2)
    return [generator.choice(EXPERTS, generator.integers(0, 5), replace=False).tolist() for _ in range(63)]


def index_of(active: list[list[int]], texts: int, ends: Callable[[int], bool]) -> CoactivationIndex:
    """The index of experts on each token, whose texts are taken in turn and whose sequences end at some places."""
    places = range(len(active))
    counts, experts = [len(each) for each in active], [expert for each in active for expert in each]
    of_texts, last = np.array([place % texts for place in places]), np.array([ends(place) for place in places])
    return CoactivationIndex(of_texts, last, np.array(counts), np.array(experts), max(experts) + 1)


@pytest.fixture(scope="module")
def sample(active: list[list[int]]) -> CoactivationIndex:
    return index_of(active, 5, lambda place: place % LENGTH == LENGTH - 1)


@pytest.mark.parametrize("shift", SHIFTS)
def test_coactivations_of_sequences(
    sample: CoactivationIndex, active: list[list[int]], shift: Shift, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mxd.backend.queries.coactivation.MIN_EVENTS", len(active))
    for expert in range(EXPERTS):
        active_at = [place for place, experts in enumerate(active) if expert in experts]
        places = [place for place in active_at if 0 <= place % LENGTH + shift < LENGTH]
        counts = Counter(other for place in places for other in active[place + shift])
        if shift == 0:
            del counts[expert]
        found = sample.companions(expert, shift, EXPERTS)
        assert {one.expert: one.shared.tokens for one in found} == {one: n for one, n in counts.items() if n >= 2}
        assert {one.shared.of_tokens for one in found} <= {len(places)}
        overlaps = [one.jaccard for one in found]
        assert overlaps == sorted(overlaps, reverse=True)
        assert {(one.shared.share, one.shared.share_interval, one.shared.lift) for one in found} <= {(None, None, None)}


def pair(both: int, alone: int, other: int) -> list[Companion]:
    """Companions of expert 0, on ``both + alone`` of 1,000 tokens; expert 1 is on ``both`` and on ``other`` more."""
    active = [[0, 1]] * both + [[0]] * alone + [[1]] * other
    active += [[2]] * (1000 - len(active))
    return list(index_of(active, 1, lambda place: place == 999).companions(0, 0, 3))


def test_shares_need_enough_active_tokens() -> None:
    (few,) = pair(both=10, alone=MIN_EVENTS - 11, other=0)
    assert (few.shared.tokens, few.shared.of_tokens) == (10, MIN_EVENTS - 1)
    assert (few.shared.share, few.shared.share_interval, few.shared.lift) == (None, None, None)
    (enough,) = pair(both=10, alone=MIN_EVENTS - 10, other=0)
    assert enough.shared.share == pytest.approx(10 / MIN_EVENTS)
    assert enough.shared.share_interval == wilson_interval(10 / MIN_EVENTS, MIN_EVENTS)
    assert enough.shared.lift == pytest.approx(10 / MIN_EVENTS / 0.01)


def test_companions_are_active_more_often_than_elsewhere() -> None:
    assert pair(both=50, alone=50, other=100)[0].expert == 1
    assert pair(both=50, alone=50, other=450) == []  # on half of all tokens as well


def test_tokens_are_compared_by_cosine(sample: CoactivationIndex, active: list[list[int]]) -> None:
    vectors = np.zeros((EXPERTS, 5))
    for place, experts in enumerate(active):
        vectors[experts, place % 5] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for other, cosine in sample.by_tokens(3, EXPERTS)[0]:
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
