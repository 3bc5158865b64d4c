"""Contexts at random over all active tokens: the shares of the intervals, the seed, and where the draw ends."""

from __future__ import annotations

import random
from collections import Counter

from fastapi.testclient import TestClient
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from backend.queries.random_contexts import Draw, drawn
from tests.backend.stores import PER_EXPERT
from trainer.store import ExpertRecord

PATH = "/api/runs/first/experts/9/contexts/random"
TOKENS = {1: 5, 2: 20, 3: 75}
KEPT = {1: range(5), 2: range(10), 3: range(10)}


def test_the_first_of_a_draw_follows_the_shares_of_the_intervals() -> None:
    draws = [drawn(TOKENS, KEPT, 1, random.Random(seed)).places[0] for seed in range(4000)]
    counts = Counter(place.interval for place in draws)
    for interval, tokens in TOKENS.items():
        assert abs(counts[interval] / 4000 - tokens / 100) < 0.02
    of_third = Counter(place.rank for place in draws if place.interval == 3)
    assert set(of_third) == set(KEPT[3])


def test_a_short_draw_is_the_beginning_of_a_long_one() -> None:
    short, long = (drawn(TOKENS, KEPT, limit, random.Random(3)).places for limit in (4, 9))
    assert len(long) == len(set(long)) == 9
    assert long[:4] == short


def test_a_draw_ends_where_the_wanted_interval_has_none_left() -> None:
    assert drawn({1: 50}, {1: range(3)}, 20, random.Random(0)).short_of == 1
    assert len(drawn({1: 50}, {1: range(3)}, 20, random.Random(0)).places) == 3
    assert drawn({1: 0, 2: 4}, {}, 20, random.Random(0)) == Draw((), short_of=2)


def test_what_is_kept_in_full_is_drawn_in_full() -> None:
    draw = drawn({1: 2, 2: 3}, {1: range(2), 2: range(3)}, 20, random.Random(0))
    assert (len(draw.places), draw.short_of) == (5, None)


def test_the_same_seed_draws_the_same_over_http(own: Engine, own_client: TestClient) -> None:
    with Session(own) as session, session.begin():
        intervals = [[0.0, 4.0, 3]]
        session.execute(update(ExpertRecord).where(ExpertRecord.expert == 9).values(intervals=intervals))
    answers = [own_client.get(PATH, params={"seed": seed}).json() for seed in (0, 0, 1, 2, 3)]
    assert answers[0] == answers[1]
    orders = {tuple(context["rank"] for context in answer["contexts"]) for answer in answers}
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2)}
    assert {context["interval"] for context in answers[0]["contexts"]} == {1}
    assert answers[0]["short_of"] is None


def test_none_of_the_largest_is_drawn_because_it_is_large(client: TestClient) -> None:
    for seed in range(PER_EXPERT):
        drawn_ones = client.get(PATH, params={"seed": seed}).json()["contexts"]
        assert all(context["interval"] > 0 for context in drawn_ones)


def test_a_dead_expert_has_none(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/150/contexts/random").json()
    assert answer == {"seed": 0, "active_tokens": 0, "short_of": None, "contexts": []}


def test_an_unknown_expert_is_refused(client: TestClient) -> None:
    assert client.get("/api/runs/first/experts/160/contexts/random").status_code == 404
    assert client.get(PATH, params={"limit": 0}).status_code == 422
