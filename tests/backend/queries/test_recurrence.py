"""Recurrence of experts: in pages, in detail, and after measurements change."""

from __future__ import annotations

from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, update

from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import MeasurementRecord, RecurrenceRecord
from tests.backend.queries.test_experts import all_pages
from tests.helpers.databases import COMPARED, NUM_EXPERTS


def found(expert: int) -> int | None:
    """Number of other runs in which an expert of the database was found again."""
    return (2, 1, 0)[expert % 3] if expert < COMPARED else None


def test_an_expert_has_the_number_of_other_runs_that_found_it(client: TestClient) -> None:
    rows = all_pages(client, sort="expert", order="asc", limit=50)
    assert [row["recurrence"] for row in rows] == [found(expert) for expert in range(NUM_EXPERTS)]
    assert {row["compared_runs"] for row in rows[:COMPARED]} == {2}
    assert {row["compared_runs"] for row in rows[COMPARED:]} == {None}


def test_ties_are_ordered_by_similarity_and_experts_without_a_comparison_come_last(client: TestClient) -> None:
    for order, sign in (("desc", -1), ("asc", 1)):
        rows = all_pages(client, sort="recurrence", order=order, limit=9)
        experts = [row["expert"] for row in rows]
        compared = sorted(range(COMPARED), key=lambda expert: sign * (found(expert) + 0.5 + expert % 4 / 10))  # type: ignore[operator]
        keys = [(found(expert), expert % 4) for expert in compared]
        assert [(found(expert), expert % 4) for expert in experts[:COMPARED]] == keys
        assert set(experts[COMPARED:]) == set(range(COMPARED, NUM_EXPERTS))


def test_detail_has_the_matches_with_chance_levels(client: TestClient) -> None:
    recurrence = client.get("/api/runs/first/experts/4").json()["recurrence"]
    assert (recurrence["text"], recurrence["tokens"], recurrence["min_tokens"]) == ("held-out.jsonl", 4000, 20)
    second, third = recurrence["matches"]
    assert (second["run"], second["expert"], second["is_found"], third["is_found"]) == ("second", 5, True, False)
    assert second["firing_low"] < second["firing_cosine"] < second["firing_high"]
    assert not second["is_indexed"]
    assert client.get(f"/api/runs/first/experts/{COMPARED}").json()["recurrence"]["matches"] == []


def test_a_new_measurement_replaces_the_cached_one(own: Engine, own_client: TestClient) -> None:
    page: dict[str, str | int] = {"sort": "recurrence", "limit": 3}
    before = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    with writing(own) as session:
        session.execute(update(RecurrenceRecord).values(firing_chance=0.9))
    after = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    assert before != after
    with writing(own) as session:
        session.execute(delete(RecurrenceRecord))
        session.execute(delete(MeasurementRecord))
    rows = own_client.get("/api/runs/first/experts", params=page).json()["experts"]
    assert all(row["recurrence"] is None for row in rows)
    assert own_client.get("/api/runs/first/experts/4").json()["recurrence"] is None
