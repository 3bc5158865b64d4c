"""Pages of experts see every write."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, update
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.database.engine import DatabaseVersion, open_database
from mxd.backend.queries.automatic_labels import automatic_labels, load_shown_labels
from mxd.backend.queries.runs import find_run
from mxd.backend.settings import Settings
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import delete_index, writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, utc_now

PATH = "/api/runs/first/experts"
WRITE = """
import sys
from sqlalchemy import create_engine, text
with create_engine(sys.argv[1]).begin() as connection:
    for statement in sys.argv[2:]:
        connection.execute(text(statement))
"""


def automatic(expert: int, maker: str, accuracy: float, label: str = "Old\nfoxes") -> AutomaticLabelRecord:
    """A label that a program gave in the first run."""
    return AutomaticLabelRecord(
        run_id=1,
        expert=expert,
        labeller=maker,
        label=label,
        balanced_accuracy=accuracy,
        precision=accuracy,
        recall=0.5,
        test_examples=9,
        created_at=utc_now(),
    )


def row(client: TestClient, expert: int) -> dict[str, Any]:
    """An expert's row in the table."""
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


MADE = st.tuples(st.integers(0, 5), st.sampled_from(["features", "one", "other"]))


@given(st.dictionaries(MADE, st.sampled_from([0.25, 0.5, 0.75]), max_size=9))
def test_the_displayed_label_has_the_highest_precedence(made_up_url: str, made: dict[tuple[int, str], float]) -> None:
    engine = open_database(made_up_url)
    with Session(engine) as session:  # never committed
        session.add_all(automatic(expert, maker, accuracy) for (expert, maker), accuracy in made.items())
        session.flush()
        shown = load_shown_labels(session, 1)
        every = automatic_labels(session, find_run(session, "first"), range(6))
        for expert in range(6):
            wanted = [it.balanced_accuracy for it in every.get(expert, ())][:1]
            found = shown.of(expert)
            assert [found["balanced_accuracy"]] == wanted if found else not wanted
        scores = [shown.of(expert)["label_score"] for expert in shown.like("FOX")]  # type: ignore[index]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == sum(shown.of(expert)["balanced_accuracy"] >= 0.65 for expert in shown.rows)  # type: ignore[index]
        assert shown.like("hound") == []
    engine.dispose()


def test_the_data_version_changes_with_each_commit(own: Engine) -> None:
    version = DatabaseVersion(own)
    before = version.now()
    assert before == version.now()
    with Session(own) as session:
        session.execute(update(ExpertRecord).values(entropy=1.0))
        assert version.now() == before
        session.commit()
    assert version.now() != before
    version.close()
