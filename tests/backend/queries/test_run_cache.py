"""Pages of experts see every write."""

import subprocess
import sys
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete

from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.open import delete_index, writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from tests.helpers.databases import automatic_label

PATH = "/api/runs/first/experts"
WRITE = """
import sys
from sqlalchemy import create_engine, text
with create_engine(sys.argv[1]).begin() as connection:
    for statement in sys.argv[2:]:
        connection.execute(text(statement))
"""


def automatic(expert: int, maker: str, accuracy: float, label: str = "Old\nfoxes") -> AutomaticLabelRecord:
    return automatic_label(1, expert, maker, label, accuracy)


def row(client: TestClient, expert: int) -> dict[str, Any]:
    page = client.get(PATH, params={"sort": "expert", "order": "asc", "limit": 200}).json()
    found: dict[str, Any] = page["experts"][expert]
    return found


def test_writes_of_another_process_invalidate_the_cache(own_client: TestClient, own_settings: Settings) -> None:
    for label in ("Foxes", "Hounds"):
        row(own_client, 7)
        write = f"INSERT INTO labels VALUES ('first', 7, '{label}', '2026-01-01 00:00:00')"
        words = [sys.executable, "-c", WRITE, own_settings.database_url, "DELETE FROM labels", write]
        subprocess.run(words, check=True)
        assert row(own_client, 7)["label"] == label
        assert own_client.get(f"{PATH}/7").json()["row"]["label"] == label
        assert own_client.get(PATH, params={"sort": "label"}).json()["experts"][0]["expert"] == 7


def test_two_servers_see_the_writes_of_each_other(own_settings: Settings) -> None:
    apps = [create_app(own_settings) for _ in range(2)]
    with TestClient(apps[0]) as one, TestClient(apps[1]) as other:
        for writer, reader in ((one, other), (other, one)):
            assert row(reader, 5)["tags"] == []
            writer.patch(f"{PATH}/5", json={"add_tags": ["odd"]})
            assert row(reader, 5)["tags"] == row(writer, 5)["tags"] == ["odd"]
            assert reader.get(PATH, params={"tag": "odd"}).json()["matching"] == 1
            reader.patch(f"{PATH}/5", json={"remove_tags": ["odd"]})
            assert row(writer, 5)["tags"] == []


def test_automatic_labels_are_added_and_removed(own: Engine, own_client: TestClient) -> None:
    assert row(own_client, 3)["automatic"] is None
    with writing(own) as session:
        session.add_all([automatic(3, "features", 0.9), automatic(3, "other", 0.7, "Hounds")])
    assert row(own_client, 3)["automatic"]["label"] == "Hounds"
    found = own_client.get("/api/search", params={"runs": "first", "text": "HOUND"}).json()[0]["hits"]
    assert (found[0]["expert"], found[0]["automatic"]["labeller"]) == (3, "other")
    assert own_client.get(PATH, params={"search": "hounds"}).json()["matching"] == 1
    with writing(own) as session:
        session.execute(delete(AutomaticLabelRecord).where(AutomaticLabelRecord.labeller == "other"))
    assert row(own_client, 3)["automatic"]["label"] == "Old\nfoxes"
    assert own_client.get(PATH, params={"search": "old fox"}).json()["matching"] >= 1


def test_experts_with_automatic_labels_follow_those_with_a_user_label(own: Engine, own_client: TestClient) -> None:
    own_client.patch(f"{PATH}/7", json={"label": "Zebra"})
    own_client.patch(f"{PATH}/9", json={"label": "apple"})
    with writing(own) as session:
        weak, good, best = automatic(3, "features", 0.6), automatic(5, "features", 0.7), automatic(8, "features", 0.9)
        session.add_all([weak, good, best, automatic(9, "features", 1.0)])
    for order, first in (("asc", [9, 7]), ("desc", [7, 9])):
        pages = own_client.get(PATH, params={"sort": "label", "order": order, "limit": 3}).json()
        rest = own_client.get(PATH, params={"sort": "label", "order": order, "cursor": pages["next_cursor"]}).json()
        experts = [row["expert"] for row in (*pages["experts"], *rest["experts"])]
        assert experts[:4] == [*first, 8, 5]
        assert len(set(experts)) == len(experts)


def test_the_best_matches_of_a_search_come_first(own_client: TestClient) -> None:
    for expert, label in ((7, "foxes and hounds"), (9, "a hound"), (11, "hound")):
        own_client.patch(f"{PATH}/{expert}", json={"label": label})
    for limit in (1, 2, 200):
        page: dict[str, str | int] = {"search": "hound", "sort": "match", "order": "asc", "limit": limit}
        experts: list[int] = []
        while page.get("cursor", "") is not None:
            answer = own_client.get(PATH, params=page).json()
            experts += [row["expert"] for row in answer["experts"]]
            page["cursor"] = answer["next_cursor"]
        assert experts[:3] == [11, 9, 7]
        assert len(set(experts)) == len(experts) == answer["matching"]
    by_label, unsearched = (own_client.get(PATH, params={"sort": sort, "order": "asc"}) for sort in ("label", "match"))
    assert unsearched.json()["experts"] == by_label.json()["experts"]


def test_a_deleted_index_is_removed_from_the_cache(own: Engine, own_client: TestClient) -> None:
    assert own_client.get(PATH).status_code == 200
    with writing(own) as session:
        delete_index(session, 1)
    for path in (PATH, f"{PATH}?sort=random", f"{PATH}/3", f"{PATH}/3/examples", "/api/search?runs=first&text=x"):
        assert own_client.get(path).json()["error"]["code"] == "no-index", path
