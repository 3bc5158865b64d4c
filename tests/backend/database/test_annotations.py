"""Labels and notes over HTTP, and that they outlive an index."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import count_written, remove_written
from mxd.trainer.storage.database.open import delete_index

EXPERT = "/api/runs/first/experts/4"


def test_a_label_is_set_changed_and_deleted(own_client: TestClient) -> None:
    for label in ("Foxes", "Old foxes"):
        assert own_client.patch(EXPERT, json={"label": f"  {label} "}).status_code == 204
        assert own_client.get(EXPERT).json()["row"]["label"] == label
    row = own_client.get("/api/runs/first/experts", params={"sort": "expert", "order": "asc"}).json()["experts"][4]
    assert row["label"] == "Old foxes"
    for _ in range(2):
        assert own_client.patch(EXPERT, json={"label": None}).status_code == 204
        assert own_client.get(EXPERT).json()["row"]["label"] is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/runs/none/experts/4", {"label": "x"}, 404),
        ("/api/runs/first/experts/4000", {"label": "x"}, 404),
        (EXPERT, {"label": "   "}, 422),
        (EXPERT, {"label": "x" * 201}, 422),
        (EXPERT, {"label": "x", "colour": "red"}, 422),
        (EXPERT, {"note": ""}, 422),
    ],
)
def test_invalid_labels_and_notes_are_rejected(
    own_client: TestClient, path: str, body: dict[str, str], status: int
) -> None:
    assert own_client.patch(path, json=body).status_code == status


def test_labels_survive_a_new_index(own_client: TestClient, own: Engine) -> None:
    own_client.patch(EXPERT, json={"label": "Foxes"})
    with Session(own) as session, session.begin():
        delete_index(session, 1)
        assert notes.labels_of(session, "first", [4]) == {4: "Foxes"}
        assert count_written(session, "first") == 1
        remove_written(session, "first")
        assert count_written(session, "first") == 0


def test_a_failed_write_is_reported(own_client: TestClient, database_kind: str) -> None:
    answer = own_client.patch("/api/runs/first/experts/3", json={"note": "a\0b"})
    assert answer.status_code == (204 if database_kind == "sqlite" else 422)
    assert database_kind == "sqlite" or answer.json()["error"]["code"] == "cannot-be-stored"
