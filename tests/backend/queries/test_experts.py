"""Experts over HTTP: paging in any order, filters, one in full, its neighbours, its random examples."""

import random
from collections import Counter
from functools import cache
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

from mxd.backend.database.engine import reading
from mxd.backend.queries.automatic_labels import accuracy_interval
from mxd.backend.queries.examples import Draw, draw_examples
from mxd.backend.queries.expert_table import Columns
from mxd.backend.schemas.experts import (
    ExpertSort,
    Order,
)
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from tests.helpers.databases import ACTIVE, NUM_EXPERTS

SORTS: tuple[ExpertSort, ...] = tuple(sort for sort in get_args(ExpertSort) if sort != "label")
ORDERS: tuple[Order, ...] = get_args(Order)
ALL_ORDERS = list(product(SORTS, ORDERS))
STORED_ORDERS = [(sort, order) for sort, order in ALL_ORDERS if sort != "recurrence"]


def all_pages(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """Every expert of every page, in the order that they came."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/api/runs/first/experts", params={**query, **({"cursor": cursor} if cursor else {})}).json()
        rows += page["experts"]
        cursor = page["next_cursor"]
        if cursor is None:
            assert page["matching"] == len(rows)
            return rows


@cache
def whole_list(client: TestClient, sort: str, order: str) -> list[dict[str, Any]]:
    """All experts in one order; the database is only read."""
    return all_pages(client, sort=sort, order=order, limit=200)


@pytest.mark.parametrize(("sort", "order"), STORED_ORDERS)
def test_pages_contain_all_experts_in_order(client: TestClient, sort: ExpertSort, order: Order) -> None:
    rows = all_pages(client, sort=sort, order=order, limit=7)
    dead_last = order == "asc" and sort != "expert"
    last = [row[sort] is None or (dead_last and row["active_tokens"] == 0) for row in rows]
    keys = [
        (is_last == (order == "asc"), 0 if is_last else row[sort], row["expert"])
        for is_last, row in zip(last, rows, strict=True)
    ]
    assert len(rows) == NUM_EXPERTS
    assert keys == sorted(keys, reverse=order == "desc")


@given(
    sort=st.sampled_from(SORTS),
    order=st.sampled_from(ORDERS),
    limit=st.integers(60, 200),
    min_density=st.none() | st.sampled_from([0.0, 0.0005, 0.001, 0.0015]),
    max_density=st.none() | st.sampled_from([0.0, 0.001, 0.0025]),
    min_max_activation=st.none() | st.sampled_from([0.0, 2.0, 4.0, 9.0]),
    min_recurrence=st.none() | st.integers(0, 3),
)
def test_filters_return_matching_experts_only(
    client: TestClient, sort: str, order: str, limit: int, **filters: Any
) -> None:
    given_filters = {name: value for name, value in filters.items() if value is not None}
    rows = all_pages(client, sort=sort, order=order, limit=limit, **given_filters)
    whole = whole_list(client, sort, order)
    assert rows == [
        row
        for row in whole
        if row["density"] >= given_filters.get("min_density", -1)
        and row["density"] <= given_filters.get("max_density", 2)
        and row["max_activation"] >= given_filters.get("min_max_activation", -1)
        and (-1 if row["recurrence"] is None else row["recurrence"]) >= given_filters.get("min_recurrence", -1)
    ]


@pytest.mark.parametrize("token", ["c", " C "])
def test_the_token_filter_returns_experts_that_fire_on_it(client: TestClient, token: str) -> None:
    rows = all_pages(client, token=token, limit=7)
    whole = whole_list(client, "max_activation", "desc")
    assert rows == [row for row in whole if "c" in [top["text"] for top in row["top_tokens"]]]
    assert 0 < len(rows) < ACTIVE


def test_a_cursor_of_another_order_is_rejected(client: TestClient) -> None:
    page = client.get("/api/runs/first/experts", params={"sort": "density", "limit": 5}).json()
    answer = client.get("/api/runs/first/experts", params={"sort": "mean_activation", "cursor": page["next_cursor"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad-cursor")


def test_detail_lists_bins_in_descending_order_and_neighbours_without_dead_experts(client: TestClient) -> None:
    detail = client.get("/api/runs/first/experts/5").json()
    assert [(part["bin"], part["examples"]) for part in detail["bins"]] == [(0, 4), (1, 3), (2, 0)]
    assert (detail["bins"][0]["low"], detail["bins"][0]["high"]) == (2.5, 4.0)
    assert sum(part["active_tokens"] for part in detail["bins"][1:]) == detail["row"]["active_tokens"]
    assert (detail["previous"], detail["next"], detail["note"]) == (4, 6, None)
    detail = client.get(f"/api/runs/first/experts/{NUM_EXPERTS - 1}").json()
    assert (detail["previous"], detail["next"]) == (ACTIVE - 1, None)


def test_random_experts_are_active_and_cover_all(client: TestClient) -> None:
    drawn = client.get("/api/runs/first/experts?among=active&sort=random&limit=200").json()
    orders = [client.get("/api/runs/first/experts?among=active&sort=random&limit=5").json() for _ in range(2)]
    assert {row["expert"] for row in drawn["experts"]} == set(range(ACTIVE))
    assert orders[0]["experts"] != orders[1]["experts"]
    assert orders[0]["next_cursor"] is None


def test_a_reader_sees_a_consistent_snapshot(own: Engine) -> None:
    with reading(own) as session:
        before = session.get_one(ExpertRecord, (1, 3)).max_activation
        with Session(own) as writer, writer.begin():
            writer.get_one(ExpertRecord, (1, 3)).max_activation = before + 100
        session.expire_all()
        assert session.get_one(ExpertRecord, (1, 3)).max_activation == before


def test_labelled_experts_come_first_in_both_orders(own_client: TestClient) -> None:
    for number, label in ((7, "Zebra"), (3, "apple"), (150, "middle")):
        own_client.patch(f"/api/runs/first/experts/{number}", json={"label": label})
    for order, expected in (("asc", [3, 150, 7]), ("desc", [7, 150, 3])):
        rows = all_pages(own_client, sort="label", order=order, limit=50)
        assert [row["expert"] for row in rows[:3]] == expected
        assert len({row["expert"] for row in rows}) == len(rows)
        assert all(row["label"] is None for row in rows[3:])


def test_a_list_of_experts_is_a_filter(client: TestClient) -> None:
    rows = all_pages(client, sort="expert", order="asc", among="5,140,2")
    assert [row["expert"] for row in rows] == [2, 5, 140]


def test_the_interval_of_an_accuracy_is_over_the_held_out_examples() -> None:
    label = {"labeller": "features", "balanced_accuracy": 0.7, "precision": None, "recall": 0.0, "test_examples": 10}
    # Wilson's interval of 4 of 10 is 0.168 to 0.687.
    assert accuracy_interval(label, 0.01) == pytest.approx((0.584, 0.844), abs=5e-4)
    assert accuracy_interval(label | {"balanced_accuracy": None}, 0.01) is None
    assert accuracy_interval(label | {"labeller": "a language model"}, 0.01) is None
    assert accuracy_interval(None, 0.01) is None
    # All 9 examples match, and 80 % of the inactive tokens. Wilson's interval of 9 of 9 is 0.701 to 1.
    label |= {"balanced_accuracy": 0.6, "precision": 0.5 / (0.5 + 0.8 * 0.5), "recall": 1.0, "test_examples": 9}
    assert accuracy_interval(label, 0.5) == pytest.approx((0.451, 0.6), abs=1e-3)


PATH = "/api/runs/first/experts/9/examples"
TOKENS = {1: 5, 2: 20, 3: 75}
KEPT = {1: range(5), 2: range(10), 3: range(10)}


def test_the_first_draw_follows_the_bin_weights() -> None:
    draws = [draw_examples(TOKENS, KEPT, 1, random.Random(seed)).places[0] for seed in range(4000)]
    counts = Counter(number for number, _ in draws)
    for number, tokens in TOKENS.items():
        assert abs(counts[number] / 4000 - tokens / 100) < 0.02
    of_third = Counter(rank for number, rank in draws if number == 3)
    assert set(of_third) == set(KEPT[3])


def test_a_sample_ends_when_a_bin_is_exhausted() -> None:
    assert draw_examples({1: 50}, {1: range(3)}, 20, random.Random(0)).exhausted_bin == 1
    assert len(draw_examples({1: 50}, {1: range(3)}, 20, random.Random(0)).places) == 3
    assert draw_examples({1: 0, 2: 4}, {}, 20, random.Random(0)) == Draw((), exhausted_bin=2)


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


def test_steerable_experts_have_the_highest_steerability() -> None:
    steerability = np.linspace(0, 1, 41)
    steerability[0] = np.nan
    columns = Columns(np.arange(100, 141), {"steerability": steerability})
    assert columns.most_steerable.tolist() == [139, 140]
    assert len(Columns(np.arange(3), {"steerability": np.full(3, np.nan)}).most_steerable) == 0
