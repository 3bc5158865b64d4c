"""Random examples over all active tokens: the shares of the bins, the seed, and where the draw ends."""

from __future__ import annotations

import random
from collections import Counter

from fastapi.testclient import TestClient
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from mxd.backend.queries.examples import Draw, draw_examples
from mxd.trainer.storage.database.expert_columns import ExpertRecord

PATH = "/api/runs/first/experts/9/examples"
TOKENS = {1: 5, 2: 20, 3: 75}
KEPT = {1: range(5), 2: range(10), 3: range(10)}


def test_the_first_draw_follows_the_bin_weights() -> None:
    draws = [draw_examples(TOKENS, KEPT, 1, random.Random(seed)).places[0] for seed in range(4000)]
    counts = Counter(place.bin for place in draws)
    for number, tokens in TOKENS.items():
        assert abs(counts[number] / 4000 - tokens / 100) < 0.02
    of_third = Counter(place.rank for place in draws if place.bin == 3)
    assert set(of_third) == set(KEPT[3])


def test_a_short_sample_is_a_prefix_of_a_long_one() -> None:
    short, long = (draw_examples(TOKENS, KEPT, limit, random.Random(3)).places for limit in (4, 9))
    assert len(long) == len(set(long)) == 9
    assert long[:4] == short


def test_a_sample_ends_when_a_bin_is_exhausted() -> None:
    assert draw_examples({1: 50}, {1: range(3)}, 20, random.Random(0)).exhausted_bin == 1
    assert len(draw_examples({1: 50}, {1: range(3)}, 20, random.Random(0)).places) == 3
    assert draw_examples({1: 0, 2: 4}, {}, 20, random.Random(0)) == Draw((), exhausted_bin=2)


def test_an_expert_with_all_examples_stored_is_sampled_completely() -> None:
    draw = draw_examples({1: 2, 2: 3}, {1: range(2), 2: range(3)}, 20, random.Random(0))
    assert (len(draw.places), draw.exhausted_bin) == (5, None)


def test_the_same_seed_returns_the_same_sample_over_http(own: Engine, own_client: TestClient) -> None:
    with Session(own) as session, session.begin():
        bins = [[0.0, 4.0, 3]]
        session.execute(update(ExpertRecord).where(ExpertRecord.expert == 9).values(bins=bins))
    answers = [own_client.get(PATH, params={"seed": seed}).json() for seed in (0, 0, 1, 2, 3)]
    assert answers[0] == answers[1]
    orders = {tuple(example["rank"] for example in answer["examples"]) for answer in answers}
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2)}
    assert {example["bin"] for example in answers[0]["examples"]} == {1}
    assert answers[0]["sample"]["exhausted_bin"] is None


def test_a_dead_expert_has_no_examples(client: TestClient) -> None:
    answer = client.get("/api/runs/first/experts/150/examples?seed=0").json()
    assert answer["sample"] == {"seed": 0, "active_tokens": 0, "exhausted_bin": None}
    assert answer["examples"] == []
