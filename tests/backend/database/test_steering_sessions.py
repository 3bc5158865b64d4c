"""Saved steering sessions: kept, listed, opened, deleted; and they write the same texts again."""

import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

SESSIONS = "/api/runs/first/sessions"
STEERING = {
    "prompt": "the old fox",
    "edits": [{"expert": 4, "mode": "add", "strength": 2.5}, {"expert": 1, "mode": "ablate"}],
    "scope": "generated",
    "sampling": {"seed": 7, "max_tokens": 5, "stop": ["."]},
}


def save(client: TestClient, name: str = "Foxes", path: str = SESSIONS, **changes: Any) -> dict[str, Any]:
    answer = client.post(path, json={"name": name, "steering": {**STEERING, **changes}})
    assert answer.status_code == 201, answer.text
    saved: dict[str, Any] = answer.json()
    return saved


def test_a_session_round_trips(own_client: TestClient) -> None:
    saved = save(own_client, "  Foxes ")
    assert re.fullmatch("[2-9a-z]{7}", saved["id"])
    opened = own_client.get(f"/api/sessions/{saved['id']}").json()
    assert opened == saved
    assert (opened["name"], opened["run"], opened["changed"]) == ("Foxes", "first", [])
    assert not opened["is_chat"]
    assert opened["edits"] == opened["steering"]["edits"]
    for key, value in STEERING["sampling"].items():  # type: ignore[attr-defined]
        assert opened["steering"]["sampling"][key] == value
    assert opened["steering"]["edits"][0] == {
        "expert": 4,
        "mode": "add",
        "strength": 2.5,
        "run": None,
        "when": None,
    }


def test_a_session_keeps_the_beginning_of_its_text(own_client: TestClient) -> None:
    assert save(own_client)["text"] is None
    answer = own_client.post(SESSIONS, json={"name": "Foxes", "steering": STEERING, "text": "jumps again"})
    assert answer.json()["text"] == "jumps again"
    assert own_client.get(SESSIONS).json()["sessions"][0]["text"] == "jumps again"


def test_sessions_are_listed_newest_first_without_deleted_ones(own_client: TestClient) -> None:
    first, second = (save(own_client, name)["id"] for name in ("one", "two"))
    listed = own_client.get(SESSIONS).json()["sessions"]
    assert [it["id"] for it in listed] == [second, first]
    assert own_client.delete(f"/api/sessions/{second}").status_code == 204
    assert [it["id"] for it in own_client.get(SESSIONS).json()["sessions"]] == [first]
    for answer in (own_client.delete(f"/api/sessions/{second}"), own_client.get(f"/api/sessions/{second}")):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "session-not-found"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/runs/none/sessions", {"name": "x", "steering": STEERING}, 404),
        (SESSIONS, {"name": " ", "steering": STEERING}, 422),
        (SESSIONS, {"name": "x", "steering": {**STEERING, "edits": [{"expert": 4000, "mode": "ablate"}]}}, 404),
    ],
)
def test_invalid_sessions_are_rejected(own_client: TestClient, path: str, body: dict[str, Any], status: int) -> None:
    assert own_client.post(path, json=body).status_code == status
    assert own_client.get(SESSIONS).json()["sessions"] == []


def test_a_session_reports_a_new_index(own_client: TestClient, own: Engine) -> None:
    saved = save(own_client)
    with own.begin() as connection:
        connection.execute(text("UPDATE experts SET p99 = p99 + 1 WHERE expert = 4"))
    (sentence,) = own_client.get(f"/api/sessions/{saved['id']}").json()["changed"]
    assert "indexed again" in sentence


def test_an_opened_session_reproduces_its_tokens(live_client: TestClient) -> None:
    def tokens(steering: dict[str, Any]) -> list[int]:
        with live_client.stream("POST", "/api/runs/small/steering", json=steering) as answer:
            lines = "".join(answer.iter_text()).split("\n")
        data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        return [each["id"] for each in data if each["event"] == "token"]

    saved = save(live_client, path="/api/runs/small/sessions")
    opened = live_client.get(f"/api/sessions/{saved['id']}").json()
    assert tokens(opened["steering"]) == tokens(STEERING)
    live_client.delete(f"/api/sessions/{saved['id']}")


def test_a_damaged_session_does_not_hide_the_others(own_client: TestClient, own: Engine) -> None:
    first, second = (save(own_client, name)["id"] for name in ("one", "two"))
    with own.begin() as connection:
        connection.execute(text("UPDATE sessions SET steering = '{\"prompt\": 7}' WHERE id = :id"), {"id": first})
    assert [it["id"] for it in own_client.get(SESSIONS).json()["sessions"]] == [second]
    answer = own_client.get(f"/api/sessions/{first}")
    assert answer.status_code == 400
    assert "Delete it" in answer.json()["error"]["message"]
