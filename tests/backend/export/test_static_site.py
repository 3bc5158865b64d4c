"""The static site of a run says what the server says, appears whole or not at all, and has no markup of users."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import open_database, reading
from mxd.backend.export.neuronpedia import Target, export_run
from mxd.backend.export.static_site.write import COLUMNS, EXAMPLES, EXPERTS_PER_FILE
from mxd.backend.settings import Settings
from mxd.trainer.analysis.expert import TOKENS_AROUND_PEAK
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.databases import made_up_database

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an indexed run, one of whose experts has a hostile label."""
    folder = tmp_path_factory.mktemp("data")
    database = made_up_database(folder, sqlite_url(folder))
    with writing(database) as session:
        notes.set_label(session, "first", 3, HOSTILE)
    database.dispose()
    return folder


@pytest.fixture(scope="module")
def site(data: Path) -> Path:
    assert mxd(["export", "first", "--format", "site", "--out", str(data / "site"), "--data", str(data)]) == 0
    return data / "site"


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data=data, frontend=data / "dist"))) as it:
        yield it


def export(session: Session, data: Path, folder: Path, callbacks: Callbacks = NO_CALLBACKS) -> int:
    return export_run(session, Run.load("first", data), Target(folder, "site"), callbacks)


def shard(site: Path, name: str) -> Any:
    text = (site / "data" / f"{name}.js").read_text("utf-8")
    return json.loads(text[text.index(", ") + 2 : text.rindex(")")])


def table(site: Path) -> dict[str, Any]:
    text = (site / "data" / "table.js").read_text("utf-8")
    read: dict[str, Any] = json.loads(text.removeprefix("window.SITE = ").rstrip(";\n"))
    return read


def test_labels_statistics_and_examples_equal_those_of_the_server(client: TestClient, site: Path) -> None:
    served_columns = {column["key"]: column for column in client.get("/api/columns").json()["columns"]}
    assert table(site)["columns"] == [served_columns[column.key] for column in COLUMNS]
    for row in table(site)["rows"]:
        number = row["expert"]
        path = f"/api/runs/first/experts/{number}"
        served = client.get(path).json()["row"]
        assert row["label"] == served["label"]
        assert row["automatic"] == (served["automatic"] and served["automatic"]["label"])
        assert row["tokens"] == [token["text"] for token in served["top_tokens"]]
        stored = {column.key: served[column.key] for column in COLUMNS if served[column.key] is not None}
        assert {key: row[key] for key in stored} == pytest.approx(stored, rel=1e-6)
        assert all(row[column.key] is None for column in COLUMNS if column.key not in stored)
        detail = shard(site, f"experts-{number // EXPERTS_PER_FILE}")[str(number)]
        assert detail["histogram"] == served["histogram"]
        examples = client.get(f"{path}/examples", params={"bin": 0, "limit": EXAMPLES}).json()["examples"]
        assert len(detail["examples"]) == len(examples)
        for (activation, parts), example in zip(detail["examples"], examples, strict=True):
            assert activation == pytest.approx(example["activation"], rel=1e-6)
            first, last = (example["position"] + way * TOKENS_AROUND_PEAK for way in (-1, 1))
            text = "".join(example["tokens"][max(first, 0) : last + 1]).lstrip(" ")
            assert "".join(part if isinstance(part, str) else part[0] for part in parts) == text
            active = [strength for position, strength, _ in example["active"] if first <= position <= last]
            assert [part[1] for part in parts if not isinstance(part, str)] == pytest.approx(active, abs=1e-4)
            assert sum(len(part) == 3 for part in parts if not isinstance(part, str)) == 1


def test_words_lead_to_the_experts_whose_examples_have_them(site: Path) -> None:
    index = {
        word: set(experts)
        for path in (site / "data").glob("words-*.js")
        for word, experts in shard(site, path.stem).items()
    }
    assert index
    for row in table(site)["rows"][:20]:
        number = row["expert"]
        detail = shard(site, f"experts-{number // EXPERTS_PER_FILE}")[str(number)]
        texts = (
            "".join(part if isinstance(part, str) else part[0] for part in parts) for _, parts in detail["examples"]
        )
        words = {word for text in texts for word in re.findall(r"[^\W_]+", text.lower())}
        assert words == {word for word, experts in index.items() if number in experts}


def test_labels_of_users_are_data_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    assert "weights" in page
    assert "mxd" in page
    assert HOSTILE not in page
    assert "innerHTML" not in (site / "site.js").read_text("utf-8")
    for path in (site / "index.html", site / "site.css"):
        assert not re.search(r"(src|href)=\"(https?:|/)|url\(", path.read_text("utf-8"))


def test_a_site_appears_whole_or_not_at_all(data: Path, tmp_path: Path) -> None:
    engine = open_database(sqlite_url(data))
    with reading(engine) as session:
        with pytest.raises(CancelledError):
            export(session, data, tmp_path / "cancelled", Callbacks(is_cancelled=lambda: True))
        assert not list(tmp_path.iterdir())
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("mine")
        with pytest.raises(UserError, match="not empty"):
            export(session, data, tmp_path / "mine")
        assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"
    engine.dispose()
