"""Lists, tags, labels, notes and steering sessions over HTTP: never lost or doubled, and kept by a new index."""

import random
import re
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from mxd.backend.database import annotations
from mxd.backend.database.engine import count_written, remove_written
from mxd.trainer.storage.database.open import delete_index
from tests.helpers.databases import NUM_EXPERTS

LISTS = "/api/runs/first/lists"
EXPERT = "/api/runs/first/experts/4"


def made(client: TestClient, name: str = "Dates", experts: list[int] | None = None) -> str:
    answer = client.post(LISTS, json={"name": name, "experts": experts or []})
    assert answer.status_code == 201
    return f"{LISTS}/{answer.json()['id']}"


def experts_in(client: TestClient, address: str) -> list[int]:
    return [entry["row"]["expert"] for entry in client.get(address).json()["entries"]]


def test_a_list_is_filled_reordered_renamed_noted_on_and_deleted(own_client: TestClient) -> None:
    address = made(own_client, experts=[7, 3, 7])
    assert experts_in(own_client, address) == [7, 3]
    for change, experts in (
        ({"add": [9, 3]}, [7, 3, 9]),
        ({"order": [9, 7, 3]}, [9, 7, 3]),
        ({"remove": [7]}, [9, 3]),
        ({"remove": [7]}, [9, 3]),
        ({"name": "Days", "note": "For the talk.", "entry_notes": {"3": "The clearest."}}, [9, 3]),
    ):
        assert own_client.patch(address, json=change).status_code == 204
        assert experts_in(own_client, address) == experts
    assert own_client.get(LISTS).json()["lists"][0]["experts"] == 2
    shown = own_client.get(address).json()
    assert (shown["list"]["name"], shown["list"]["note"]) == ("Days", "For the talk.")
    assert [entry["note"] for entry in shown["entries"]] == [None, "The clearest."]
    own_client.patch(address, json={"note": ""})
    assert own_client.get(address).json()["list"]["note"] is None
    assert own_client.delete(address).status_code == 204
    assert own_client.get(address).json()["error"]["code"] == "list-not-found"
    assert own_client.get("/api/runs/first/experts/9").json()["lists"] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(st.lists(st.integers(0, NUM_EXPERTS - 1), unique=True, max_size=20), st.randoms())
def test_any_order_is_stored(own_client: TestClient, experts: list[int], chance: random.Random) -> None:
    address = made(own_client, name=f"L{len(own_client.get(LISTS).json()['lists'])}", experts=experts)
    chance.shuffle(experts)
    assert own_client.patch(address, json={"order": experts}).status_code == 204
    assert experts_in(own_client, address) == experts


def test_an_expert_has_its_lists_and_tags_and_the_table_is_filtered_by_them(own_client: TestClient) -> None:
    for expert, tag in ((4, "weekday"), (4, "calendar"), (4, "weekday"), (8, "weekday"), (9, "weekday")):
        assert own_client.patch(f"/api/runs/first/experts/{expert}", json={"add_tags": [tag]}).status_code == 204
    made(own_client, "B", [4])
    number = made(own_client, "A", [9, 4, 30]).rsplit("/", 1)[1]
    detail = own_client.get(EXPERT).json()
    assert [one["name"] for one in detail["lists"]] == ["A", "B"]
    assert detail["row"]["tags"] == ["calendar", "weekday"]
    assert [tuple(it.values()) for it in own_client.get(LISTS).json()["tags"]] == [("calendar", 1), ("weekday", 3)]
    address = "/api/runs/first/experts?sort=expert&order=asc"
    for query, wanted in (
        ("&tag=weekday", [4, 8, 9]),
        (f"&list={number}", [4, 9, 30]),
        (f"&tag=weekday&list={number}", [4, 9]),
        ("&tag=none", []),
    ):
        page = own_client.get(address + query).json()
        assert [row["expert"] for row in page["experts"]] == wanted
        assert page["matching"] == len(wanted)
    assert own_client.get(f"{address}&list=99").status_code == 404
    own_client.patch(EXPERT, json={"remove_tags": ["calendar"]})
    assert own_client.get(EXPERT).json()["row"]["tags"] == ["weekday"]


def test_invalid_requests_are_rejected_and_change_nothing(own: Engine, own_client: TestClient) -> None:
    experts, first = "/api/runs/first/experts", f"{LISTS}/1"
    made(own_client, "Dates", [1, 2])
    made(own_client, "Ötzi \u00bcÖW")
    wrong: list[tuple[str, str, Any, int]] = [
        ("post", LISTS, {"name": "dates"}, 400),
        *(("post", LISTS, {"name": name}, 400) for name in ("ötzi \u00bcöw", "Ötzi \u00bcÖW", "ÖTZI \u00bcÖW")),
        ("post", LISTS, {"name": "  "}, 422),
        ("post", LISTS, {"name": "x", "experts": [NUM_EXPERTS]}, 404),
        ("post", "/api/runs/none/lists", {"name": "x"}, 404),
        ("patch", first, {"order": [1]}, 400),
        ("patch", first, {"add": [3], "order": [1, 2]}, 400),
        ("patch", first, {"add": [NUM_EXPERTS]}, 404),
        ("patch", first, {"entry_notes": {"8": "x"}}, 404),
        ("patch", first, {"entry_notes": {str(10**20): "x"}}, 422),
        ("get", f"{LISTS}/99", None, 404),
        ("get", "/api/runs/second/lists/1", None, 404),
        ("patch", f"{experts}/{NUM_EXPERTS}", {"add_tags": ["x"]}, 404),
        ("patch", f"{experts}/1", {"add_tags": [" "]}, 422),
        ("patch", "/api/runs/none/experts/4", {"label": "x"}, 404),
        ("patch", f"{experts}/4000", {"label": "x"}, 404),
        *(("patch", EXPERT, {"label": label}, 422) for label in ("   ", "x" * 201)),
        ("patch", EXPERT, {"label": "x", "colour": "red"}, 422),
        ("patch", EXPERT, {"note": ""}, 422),
        ("post", "/api/runs/none/sessions", {"name": "x", "steering": STEERING}, 404),
        ("post", SESSIONS, {"name": " ", "steering": STEERING}, 422),
        ("post", SESSIONS, {"name": "x", "steering": {**STEERING, "edits": [{"expert": 4000, "mode": "ablate"}]}}, 404),
    ]
    if own.dialect.name == "postgresql":
        wrong.append(("patch", EXPERT, {"note": "a\0b"}, 422))
    before = own_client.get(EXPERT).json()
    for method, path, body, status in wrong:
        answer = own_client.request(method, path, json=body)
        assert answer.status_code == status, (path, body)
        assert answer.json()["error"]["message"].endswith(".")
        assert experts_in(own_client, first) == [1, 2]
    assert own_client.get(EXPERT).json() == before
    assert own_client.get(SESSIONS).json()["sessions"] == []


def test_a_label_is_set_changed_kept_by_a_new_index_and_deleted(own_client: TestClient, own: Engine) -> None:
    for label in ("Foxes", "Old foxes"):
        assert own_client.patch(EXPERT, json={"label": f"  {label} "}).status_code == 204
        assert own_client.get(EXPERT).json()["row"]["label"] == label
    row = own_client.get("/api/runs/first/experts", params={"sort": "expert", "order": "asc"}).json()["experts"][4]
    assert row["label"] == "Old foxes"
    for _ in range(2):
        assert own_client.patch(EXPERT, json={"label": None}).status_code == 204
        assert own_client.get(EXPERT).json()["row"]["label"] is None
    own_client.patch(EXPERT, json={"label": "Foxes"})
    with Session(own) as session, session.begin():
        delete_index(session, 1)
        assert annotations.labels_of(session, "first", [4]) == {4: "Foxes"}
        assert count_written(session, "first") == 1
        remove_written(session, "first")
        assert count_written(session, "first") == 0


SESSIONS = "/api/runs/first/sessions"
STEERING: dict[str, Any] = {
    "prompt": "the old fox",
    "edits": [{"expert": 4, "mode": "add", "strength": 2.5}, {"expert": 1, "mode": "ablate"}],
    "scope": "generated",
    "sampling": {"seed": 7, "max_tokens": 5, "stop": ["."]},
}


def save(client: TestClient, name: str = "Foxes", path: str = SESSIONS, **changes: Any) -> Any:
    return client.post(path, json={"name": name, "steering": {**STEERING, **changes}}).raise_for_status().json()


def test_a_session_round_trips(own_client: TestClient) -> None:
    saved = save(own_client, "  Foxes ")
    assert re.fullmatch("[2-9a-z]{7}", saved["id"])
    opened = own_client.get(f"/api/sessions/{saved['id']}").json()
    assert opened == saved
    assert [opened[name] for name in ("name", "run", "changed", "text")] == ["Foxes", "first", [], None]
    assert not opened["is_chat"]
    assert opened["edits"] == opened["steering"]["edits"]
    assert opened["steering"]["sampling"].items() >= {"seed": 7, "max_tokens": 5}.items()
    assert opened["steering"]["sampling"]["stop"] == ["."]
    assert opened["steering"]["edits"][0] == STEERING["edits"][0] | {"run": None, "when": None}


SOLVED = {"all": 0.8, "facts": 0.8, "arithmetic": 0.8, "grammar": 0.8}
PRICE = {
    "edits": {"kl": 0.5, "loss_increase": 0.4, "kl_error": 0.1, "loss_error": 0.1},
    "random": {"kl": 0.1, "loss_increase": 0.1, "kl_error": 0.1, "loss_error": 0.1},
    "items": 200,
    "original_ability": SOLVED,
    "ability": SOLVED,
    "random_ability": SOLVED,
    "ability_error": 0.02,
}


def test_a_session_keeps_both_texts_and_the_price_of_its_edits(own_client: TestClient) -> None:
    old = save(own_client)
    assert (old["text"], old["result"], old["price"]) == (None, None, None)
    texts = {
        variant: [[{"id": 3, "text": text, "delta_log_probability": delta}]]
        for variant, text, delta in (("baseline", " sleeps", -1.5), ("steered", " jumps again", 2.5))
    }
    turns = [{"role": "user", "text": "Hello"}]
    result = {**texts, "original_turns": turns, "kl_nats": 0.75, "price": PRICE}
    answer = own_client.post(SESSIONS, json={"name": "Foxes", "steering": STEERING, "result": result})
    assert answer.status_code == 201, answer.text
    opened = own_client.get(f"/api/sessions/{answer.json()['id']}").json()
    kept = opened["result"]
    assert {**kept, "price": {key: kept["price"][key] for key in PRICE}} == {**kept, **result}
    assert (
        kept["price"]["verdict"]
        == "Costly: changes other text 5.0 × as much as random experts, without a clearly larger loss of ability."
    )
    listed, first = own_client.get(SESSIONS).json()["sessions"]
    assert (opened["text"], listed["text"], listed["price"]) == ("jumps again", "jumps again", kept["price"])
    assert (first["id"], first["price"]) == (old["id"], None)


def test_sessions_are_listed_newest_first_without_deleted_and_damaged_ones(own_client: TestClient, own: Engine) -> None:
    def listed() -> list[str]:
        return [it["id"] for it in own_client.get(SESSIONS).json()["sessions"]]

    first, second, third = (save(own_client, name)["id"] for name in ("one", "two", "three"))
    assert listed() == [third, second, first]
    assert own_client.delete(f"/api/sessions/{second}").status_code == 204
    assert listed() == [third, first]
    for answer in (own_client.delete(f"/api/sessions/{second}"), own_client.get(f"/api/sessions/{second}")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session-not-found")
    with own.begin() as connection:
        connection.execute(text("UPDATE sessions SET steering = '{\"prompt\": 7}' WHERE id = :id"), {"id": first})
    assert listed() == [third]
    answer = own_client.get(f"/api/sessions/{first}")
    assert answer.status_code == 400
    assert "Delete it" in answer.json()["error"]["message"]


def test_a_session_reports_a_new_index(own_client: TestClient, own: Engine) -> None:
    saved = save(own_client)
    with own.begin() as connection:
        connection.execute(text("UPDATE experts SET p99 = p99 + 1 WHERE expert = 4"))
    (sentence,) = own_client.get(f"/api/sessions/{saved['id']}").json()["changed"]
    assert "indexed again" in sentence
