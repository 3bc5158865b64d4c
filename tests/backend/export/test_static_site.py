"""The static site of a run says what the server says, appears whole or not at all, and has no markup of users."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mxd.backend.api.app import create_app
from mxd.backend.cli.main import run as mxd
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import opened, reading
from mxd.backend.export.static_site.write import COLUMNS, EXAMPLES, EXPERTS_PER_FILE
from mxd.backend.export.tables import export_run
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


def read(site: Path, name: str) -> Any:
    """Content of a file of data, which is a call of a function or an assignment."""
    text = (site / "data" / f"{name}.js").read_text("utf-8")
    start = text.index("= " if name == "table" else ", ") + 2
    return json.loads(text[start:].rstrip(";\n)"))


def texts(site: Path, expert: int) -> list[str]:
    detail = read(site, f"experts-{expert // EXPERTS_PER_FILE}")[str(expert)]
    return ["".join(part if isinstance(part, str) else part[0] for part in parts) for _, parts in detail["examples"]]


def test_labels_statistics_and_examples_equal_those_of_the_server(client: TestClient, site: Path) -> None:
    served_columns = {column["key"]: column for column in client.get("/api/columns").json()["columns"]}
    assert read(site, "table")["columns"] == [served_columns[column.key] for column in COLUMNS]
    for row in read(site, "table")["rows"]:
        number = row["expert"]
        path = f"/api/runs/first/experts/{number}"
        served = client.get(path).json()["row"]
        assert row["label"] == served["label"]
        assert row["automatic"] == (served["automatic"] and served["automatic"]["label"])
        assert row["tokens"] == [token["text"] for token in served["top_tokens"]]
        for column in COLUMNS:
            assert row[column.key] == (served[column.key] and pytest.approx(served[column.key], rel=1e-6))
        detail = read(site, f"experts-{number // EXPERTS_PER_FILE}")[str(number)]
        assert detail["histogram"] == served["histogram"]
        examples = client.get(f"{path}/examples", params={"bin": 0, "limit": EXAMPLES}).json()["examples"]
        for (activation, parts), text, example in zip(detail["examples"], texts(site, number), examples, strict=True):
            assert activation == pytest.approx(example["activation"], rel=1e-6)
            first, last = (example["position"] + way * TOKENS_AROUND_PEAK for way in (-1, 1))
            assert text == "".join(example["tokens"][max(first, 0) : last + 1]).lstrip(" ")
            active = [strength for position, strength, _ in example["active"] if first <= position <= last]
            marked = [part for part in parts if not isinstance(part, str)]
            assert [part[1] for part in marked] == pytest.approx(active, abs=1e-4)
            assert [len(part) for part in marked].count(3) == 1


def test_words_lead_to_the_experts_whose_examples_have_them(site: Path) -> None:
    index = [item for path in (site / "data").glob("words-*.js") for item in read(site, path.stem).items()]
    for row in read(site, "table")["rows"][:20]:
        words = set(re.findall(r"[^\W_]+", " ".join(texts(site, row["expert"])).lower()))
        assert words and words == {word for word, experts in index if row["expert"] in experts}


def test_labels_of_users_are_data_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    assert "weights" in page
    assert "mxd" in page
    assert HOSTILE not in page
    assert "innerHTML" not in (site / "site.js").read_text("utf-8")
    for path in (site / "index.html", site / "site.css"):
        assert not re.search(r"(src|href)=\"(https?:|/)|url\(", path.read_text("utf-8"))


def test_a_site_appears_whole_or_not_at_all(data: Path, tmp_path: Path) -> None:
    run = Run.load("first", data)
    with opened(sqlite_url(data)) as database, reading(database) as session:
        with pytest.raises(CancelledError):
            export_run(session, run, tmp_path / "cancelled", "site", Callbacks(is_cancelled=lambda: True))
        assert not list(tmp_path.iterdir())
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(UserError, match="not empty"):
            export_run(session, run, tmp_path, "site", NO_CALLBACKS)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
