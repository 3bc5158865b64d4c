"""Experts, their examples and similar ones over HTTP: paging, filters, one in full; pages see every write."""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, update
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.database.engine import reading
from mxd.backend.queries.automatic_labels import accuracy_interval
from mxd.backend.queries.coactivation import MIN_EVENTS, SHIFTS, CoactivationIndex, Companion, Shift
from mxd.backend.queries.examples import draw_examples
from mxd.backend.queries.expert_table import Columns
from mxd.backend.schemas.experts import ExpertSort, Order
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_index, writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, MeasurementRecord, utc_now
from mxd.trainer.utils.bootstrap import wilson_interval
from tests.helpers.databases import ACTIVE, NUM_EXPERTS, PER_EXPERT, SENTENCES, automatic_label
from tests.helpers.runs import World, byte_tokenizer

SORTS: tuple[ExpertSort, ...] = tuple(sort for sort in get_args(ExpertSort) if sort != "label")
ORDERS: tuple[Order, ...] = get_args(Order)
ALL_ORDERS = list(product(SORTS, ORDERS))
STORED_ORDERS = [(sort, order) for sort, order in ALL_ORDERS if sort != "recurrence"]


def all_pages(client: TestClient, path: str = "/api/runs/first/experts", **query: Any) -> list[dict[str, Any]]:
    """Every expert or example of every page, in the order that they came."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get(path, params={**query, **({"cursor": cursor} if cursor else {})}).json()
        rows += page[path.rpartition("/")[2]]
        cursor = page["next_cursor"]
        if cursor is None:
            assert "examples" in page or page["matching"] == len(rows)
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
def test_filters_return_matching_experts(client: TestClient, sort: str, order: str, limit: int, **filters: Any) -> None:
    wanted = {name: value for name, value in filters.items() if value is not None}
    low, high = wanted.get("min_density", -1), wanted.get("max_density", 2)
    strongest, found = wanted.get("min_max_activation", -1), wanted.get("min_recurrence", -1)
    assert all_pages(client, sort=sort, order=order, limit=limit, **wanted) == [
        row
        for row in whole_list(client, sort, order)
        if low <= row["density"] <= high
        and row["max_activation"] >= strongest
        and (-1 if row["recurrence"] is None else row["recurrence"]) >= found
    ]


@pytest.mark.parametrize("token", ["c", " C "])
def test_the_token_filter_returns_experts_that_fire_on_it(client: TestClient, token: str) -> None:
    rows = all_pages(client, token=token, limit=7)
    whole = whole_list(client, "max_activation", "desc")
    assert rows == [row for row in whole if "c" in [top["text"] for top in row["top_tokens"]]]
    assert 0 < len(rows) < ACTIVE
    assert [row["expert"] for row in all_pages(client, sort="expert", order="asc", among="5,140,2")] == [2, 5, 140]


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


def test_effects_measured_again_are_seen_if_their_sum_is_the_same(own: Engine, own_client: TestClient) -> None:
    for first, last in ((3, 4), (4, 3)):
        with writing(own) as session:
            for expert, rise in ((first, -1.0), (last, 1.0)):
                session.get_one(ExpertRecord, (1, expert)).loss_increase = rise
            session.merge(MeasurementRecord(run_id=1, command="ablate", settings={}, created_at=utc_now()))
        rows = all_pages(own_client, sort="loss_increase", order="asc", limit=50)
        assert [row["expert"] for row in rows if row["expert"] in (3, 4)] == [first, last]


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
    draws = [draw_examples(TOKENS, KEPT, 1, random.Random(seed))[0][0] for seed in range(4000)]
    counts = Counter(number for number, _ in draws)
    for number, tokens in TOKENS.items():
        assert abs(counts[number] / 4000 - tokens / 100) < 0.02
    of_third = Counter(rank for number, rank in draws if number == 3)
    assert set(of_third) == set(KEPT[3])


def test_a_sample_ends_when_a_bin_is_exhausted() -> None:
    places, exhausted = draw_examples({1: 50}, {1: range(3)}, 20, random.Random(0))
    assert (exhausted, len(places)) == (1, 3)
    assert draw_examples({1: 0, 2: 4}, {}, 20, random.Random(0)) == ((), 2)


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
    dead = own_client.get("/api/runs/first/experts/150/examples?seed=0").json()
    assert dead["sample"] == {"seed": 0, "active_tokens": 0, "exhausted_bin": None}
    assert dead["examples"] == []


def test_steerable_experts_have_the_highest_steerability() -> None:
    steerability = np.linspace(0, 1, 41)
    steerability[0] = np.nan
    columns = Columns(np.arange(100, 141), {"steerability": steerability})
    assert columns.most_steerable.tolist() == [139, 140]
    assert len(Columns(np.arange(3), {"steerability": np.full(3, np.nan)}).most_steerable) == 0


EXPERTS = "/api/runs/first/experts"


def automatic(expert: int, maker: str, accuracy: float, label: str = "Old\nfoxes") -> AutomaticLabelRecord:
    return automatic_label(1, expert, maker, label, accuracy)


def row(client: TestClient, expert: int) -> dict[str, Any]:
    return all_pages(client, sort="expert", order="asc", limit=200)[expert]


def test_two_servers_see_the_writes_of_each_other(own_settings: Settings) -> None:
    apps = [create_app(own_settings) for _ in range(2)]
    with TestClient(apps[0]) as one, TestClient(apps[1]) as other:
        for writer, reader in ((one, other), (other, one)):
            assert row(reader, 5)["tags"] == []
            writer.patch(f"{EXPERTS}/5", json={"add_tags": ["odd"], "label": f"{writer is one}"})
            assert row(reader, 5)["tags"] == row(writer, 5)["tags"] == ["odd"]
            assert reader.get(EXPERTS, params={"tag": "odd"}).json()["matching"] == 1
            assert reader.get(EXPERTS, params={"sort": "label"}).json()["experts"][0]["label"] == f"{writer is one}"
            reader.patch(f"{EXPERTS}/5", json={"remove_tags": ["odd"]})
            assert row(writer, 5)["tags"] == []


def test_automatic_labels_are_added_and_removed(own: Engine, own_client: TestClient) -> None:
    assert row(own_client, 3)["automatic"] is None
    with writing(own) as session:
        session.add_all([automatic(3, "features", 0.9), automatic(3, "other", 0.7, "Hounds")])
    assert row(own_client, 3)["automatic"]["label"] == "Hounds"
    found = own_client.get("/api/search", params={"runs": "first", "text": "HOUND"}).json()["hits"]
    assert (found[0]["expert"], found[0]["automatic"]["labeller"]) == (3, "other")
    assert own_client.get(EXPERTS, params={"search": "hounds"}).json()["matching"] == 1
    with writing(own) as session:
        session.execute(delete(AutomaticLabelRecord).where(AutomaticLabelRecord.labeller == "other"))
    assert row(own_client, 3)["automatic"]["label"] == "Old\nfoxes"
    assert own_client.get(EXPERTS, params={"search": "old fox"}).json()["matching"] >= 1


def test_experts_with_automatic_labels_follow_those_with_a_user_label(own: Engine, own_client: TestClient) -> None:
    own_client.patch(f"{EXPERTS}/7", json={"label": "Zebra"})
    own_client.patch(f"{EXPERTS}/9", json={"label": "apple"})
    with writing(own) as session:
        weak, good, best = automatic(3, "features", 0.6), automatic(5, "features", 0.7), automatic(8, "features", 0.9)
        session.add_all([weak, good, best, automatic(9, "features", 1.0)])
    for order, first in (("asc", [9, 7]), ("desc", [7, 9])):
        experts = [row["expert"] for row in all_pages(own_client, sort="label", order=order, limit=3)]
        assert experts[:4] == [*first, 8, 5]
        assert len(set(experts)) == len(experts)
    credible = own_client.get(EXPERTS, params={"sort": "credible"}).json()
    densities = {row["expert"]: row["density"] for row in all_pages(own_client, sort="expert", order="asc", limit=200)}
    assert credible["total"] - credible["late"] == sum(densities[expert] <= 0.01 for expert in (5, 7, 8, 9))
    few = own_client.get(EXPERTS, params={"sort": "credible", "among": "3,4,5"}).json()
    assert few["late"] == 2 + (densities[5] > 0.01)


def test_the_best_matches_of_a_search_come_first(own_client: TestClient) -> None:
    for expert, label in ((7, "foxes and hounds"), (9, "a hound"), (11, "hound")):
        own_client.patch(f"{EXPERTS}/{expert}", json={"label": label})
    for limit in (1, 2, 200):
        found = all_pages(own_client, search="hound", sort="match", order="asc", limit=limit)
        experts = [row["expert"] for row in found]
        assert experts[:3] == [11, 9, 7]
        assert len(set(experts)) == len(experts)
    by_label, unsearched = (
        own_client.get(EXPERTS, params={"sort": sort, "order": "asc"}) for sort in ("label", "match")
    )
    assert unsearched.json()["experts"] == by_label.json()["experts"]


def test_a_deleted_index_is_removed_from_the_cache(own: Engine, own_client: TestClient) -> None:
    assert own_client.get(EXPERTS).status_code == 200
    with writing(own) as session:
        delete_index(session, 1)
    for path in (
        EXPERTS,
        f"{EXPERTS}?sort=random",
        f"{EXPERTS}/3",
        f"{EXPERTS}/3/examples",
        "/api/search?runs=first&text=x",
    ):
        assert own_client.get(path).json()["error"]["code"] == "no-index", path


@pytest.mark.parametrize("limit", [1, 2, 3, PER_EXPERT, 100])
def test_pages_contain_all_examples_in_order_with_the_tokens_of_their_sequences(client: TestClient, limit: int) -> None:
    found = all_pages(client, PATH, limit=limit)
    places = [(context["bin"], context["rank"]) for context in found]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert all_pages(client, PATH, bin=1, limit=limit) == found[4:]
    assert all_pages(client, PATH, bin=2) == []
    for context in found:
        sentence = SENTENCES[context["sequence"]]
        assert context["token_ids"] == byte_tokenizer()(sentence)["input_ids"][:16]
        assert "".join(context["tokens"]) == sentence[:16]
        assert [context["position"], context["activation"], 2] in context["active"]


FEW, LENGTH = 12, 7


@pytest.fixture(scope="module")
def active() -> list[list[int]]:
    """Experts on each token, sequence by sequence."""
    generator = np.random.default_rng(2)
    return [generator.choice(FEW, generator.integers(0, 5), replace=False).tolist() for _ in range(63)]


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
    for expert in range(FEW):
        active_at = [place for place, experts in enumerate(active) if expert in experts]
        places = [place for place in active_at if 0 <= place % LENGTH + shift < LENGTH]
        counts = Counter(other for place in places for other in active[place + shift])
        if shift == 0:
            del counts[expert]
        found = sample.companions(expert, shift, FEW)
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
    vectors = np.zeros((FEW, 5))
    for place, experts in enumerate(active):
        vectors[experts, place % 5] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for other, cosine in sample.by_tokens(3, FEW)[0]:
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
