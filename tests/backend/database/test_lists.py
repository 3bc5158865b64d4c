"""Lists, tags, labels and notes over HTTP: never lost or doubled, and kept by a new index."""

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import count_written, remove_written
from mxd.trainer.storage.database.open import delete_index
from tests.helpers.databases import NUM_EXPERTS

LISTS = "/api/runs/first/lists"


def made(client: TestClient, name: str = "Dates", experts: list[int] | None = None) -> str:
    answer = client.post(LISTS, json={"name": name, "experts": experts or []})
    assert answer.status_code == 201
    return f"{LISTS}/{answer.json()['id']}"


def experts_in(client: TestClient, address: str) -> list[int]:
    return [entry["row"]["expert"] for entry in client.get(address).json()["entries"]]


def test_experts_are_added_reordered_and_removed(own_client: TestClient) -> None:
    address = made(own_client, experts=[7, 3, 7])
    assert experts_in(own_client, address) == [7, 3]
    own_client.patch(address, json={"add": [9, 3]})
    assert experts_in(own_client, address) == [7, 3, 9]
    assert own_client.patch(address, json={"order": [9, 7, 3]}).status_code == 204
    assert experts_in(own_client, address) == [9, 7, 3]
    for _ in range(2):
        assert own_client.patch(address, json={"remove": [7]}).status_code == 204
    assert experts_in(own_client, address) == [9, 3]
    assert own_client.get(LISTS).json()["lists"][0]["experts"] == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(st.lists(st.integers(0, NUM_EXPERTS - 1), unique=True, max_size=20), st.randoms())
def test_any_order_is_stored(own_client: TestClient, experts: list[int], chance: object) -> None:
    address = made(own_client, name=f"L{own_client.get(LISTS).json()['lists'].__len__()}", experts=experts)
    chance.shuffle(experts)  # type: ignore[attr-defined]
    assert own_client.patch(address, json={"order": experts}).status_code == 204
    assert experts_in(own_client, address) == experts


def test_notes_on_the_list_and_on_its_entries(own_client: TestClient) -> None:
    address = made(own_client, experts=[5, 6])
    assert own_client.patch(address, json={"name": "Days", "note": "For the talk."}).status_code == 204
    assert own_client.patch(address, json={"entry_notes": {"6": "The clearest."}}).status_code == 204
    shown = own_client.get(address).json()
    assert (shown["list"]["name"], shown["list"]["note"]) == ("Days", "For the talk.")
    assert [entry["note"] for entry in shown["entries"]] == [None, "The clearest."]
    own_client.patch(address, json={"note": ""})
    assert own_client.get(address).json()["list"]["note"] is None


def test_an_expert_has_its_lists_and_tags(own_client: TestClient) -> None:
    made(own_client, "B", [4])
    made(own_client, "A", [4, 5])
    for tag in ("weekday", "calendar", "weekday"):
        assert own_client.patch("/api/runs/first/experts/4", json={"add_tags": [tag]}).status_code == 204
    detail = own_client.get("/api/runs/first/experts/4").json()
    assert [one["name"] for one in detail["lists"]] == ["A", "B"]
    assert detail["row"]["tags"] == ["calendar", "weekday"]
    assert own_client.get(LISTS).json()["tags"] == [
        {"tag": "calendar", "experts": 1},
        {"tag": "weekday", "experts": 1},
    ]
    own_client.patch("/api/runs/first/experts/4", json={"remove_tags": ["calendar"]})
    assert own_client.get("/api/runs/first/experts/4").json()["row"]["tags"] == ["weekday"]


def test_deleting_a_list_keeps_its_experts(own_client: TestClient) -> None:
    address = made(own_client, experts=[5])
    assert own_client.delete(address).status_code == 204
    assert own_client.get(address).json()["error"]["code"] == "list-not-found"
    assert own_client.get("/api/runs/first/experts/5").json()["lists"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("post", LISTS, {"name": "dates"}, 400),
        ("post", LISTS, {"name": "  "}, 422),
        ("post", LISTS, {"name": "x", "experts": [NUM_EXPERTS]}, 404),
        ("post", "/api/runs/none/lists", {"name": "x"}, 404),
        ("patch", f"{LISTS}/1", {"order": [1]}, 400),
        ("patch", f"{LISTS}/1", {"add": [3], "order": [1, 2]}, 400),
        ("patch", f"{LISTS}/1", {"add": [NUM_EXPERTS]}, 404),
        ("patch", f"{LISTS}/1", {"entry_notes": {"8": "x"}}, 404),
        ("patch", f"{LISTS}/1", {"entry_notes": {str(10**20): "x"}}, 422),
        ("get", f"{LISTS}/99", None, 404),
        ("get", "/api/runs/second/lists/1", None, 404),
        ("patch", f"/api/runs/first/experts/{NUM_EXPERTS}", {"add_tags": ["x"]}, 404),
        ("patch", "/api/runs/first/experts/1", {"add_tags": [" "]}, 422),
        ("patch", "/api/runs/none/experts/4", {"label": "x"}, 404),
        ("patch", "/api/runs/first/experts/4000", {"label": "x"}, 404),
        ("patch", "/api/runs/first/experts/4", {"label": "   "}, 422),
        ("patch", "/api/runs/first/experts/4", {"label": "x" * 201}, 422),
        ("patch", "/api/runs/first/experts/4", {"label": "x", "colour": "red"}, 422),
        ("patch", "/api/runs/first/experts/4", {"note": ""}, 422),
    ],
)
def test_invalid_requests_are_rejected(
    own_client: TestClient, method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    made(own_client, "Dates", [1, 2])
    answer = own_client.request(method, path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"].endswith(".")
    if own_client.get(f"{LISTS}/1").status_code == 200:
        assert experts_in(own_client, f"{LISTS}/1") == [1, 2]


def test_names_are_case_insensitive_in_any_alphabet(own_client: TestClient) -> None:
    made(own_client, "Ötzi \u00bcÖW")
    for name in ("ötzi \u00bcöw", "Ötzi \u00bcÖW", "ÖTZI \u00bcÖW"):
        assert own_client.post(LISTS, json={"name": name}).status_code == 400


def test_the_table_is_filtered_by_tag_and_by_list(own_client: TestClient) -> None:
    for expert in (4, 8, 9):
        own_client.patch(f"/api/runs/first/experts/{expert}", json={"add_tags": ["days"]})
    number = made(own_client, experts=[9, 8, 30]).rsplit("/", 1)[1]
    address = "/api/runs/first/experts?sort=expert&order=asc"
    for query, wanted in (
        ("&tag=days", [4, 8, 9]),
        (f"&list={number}", [8, 9, 30]),
        (f"&tag=days&list={number}", [8, 9]),
    ):
        page = own_client.get(address + query).json()
        assert [row["expert"] for row in page["experts"]] == wanted
        assert page["matching"] == len(wanted)
    assert own_client.get(f"{address}&list=99").status_code == 404
    assert own_client.get(f"{address}&tag=none").json()["experts"] == []


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
