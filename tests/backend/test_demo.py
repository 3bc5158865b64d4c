"""``mxd demo``: what it makes of a sample the first time, also where it was stopped on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.commands import demo
from backend.database import opened
from backend.notes import LabelRecord
from backend.sessions import sessions_of
from backend.settings import Settings
from tests.language_models import saved_language_model
from tests.runs import small_world
from trainer.errors import UserError
from trainer.run import Run
from trainer.store import IndexRecord, sqlite_url
from trainer.tables import AutomaticLabelRecord
from trainer.train import train

SESSION = {"prompt": "the old fox", "edits": [{"expert": 3, "mode": "off"}]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a sample: a run, its text, a label and a session, and no store yet."""
    world = small_world(tmp_path)
    language_model = saved_language_model(tmp_path / "language-model")
    train(world.config(language_model=str(language_model)), world.data, world.store, world.language_model)
    world.store.dispose()
    sample = tmp_path / "sample"
    shutil.copytree(world.data / "runs", sample / "runs")
    shutil.copy(world.text.text, sample / "text.jsonl")
    written = {
        demo.INDEX_FILE: {"text": {"text": "text.jsonl", "context": 16}, "tokens": 1600},
        demo.LABELS_FILE: {"small": {"3": "A fox"}},
        demo.SESSIONS_FILE: {"small": {"No fox": SESSION}},
    }
    for name, content in written.items():
        (sample / name).write_text(json.dumps(content), "utf-8")
    return Settings(data=sample, store=sqlite_url(tmp_path / "elsewhere"), device="cpu")


def has(settings: Settings) -> dict[str, int]:
    """How much of everything is in the store."""
    with opened(settings.store_url) as store, Session(store) as session:
        tables = (IndexRecord, LabelRecord, AutomaticLabelRecord)
        counts = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
        return counts | {"sessions": len(sessions_of(session, "small"))}


def test_everything_is_there_once_and_what_is_deleted_stays_away(settings: Settings) -> None:
    demo.prepare(settings)
    found = has(settings)
    assert found["automatic_labels"] > 0
    assert {name: count for name, count in found.items() if name != "automatic_labels"} == {
        "indexes": 1,
        "labels": 1,
        "sessions": 1,
    }
    with opened(settings.store_url) as store, Session(store) as session, session.begin():
        session.delete(sessions_of(session, "small")[0])
    demo.prepare(settings)
    assert has(settings) == found | {"sessions": 0}


def test_stopped_on_the_way_it_goes_on_at_the_next_start(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(run: Run, *_rest: object) -> None:
        raise UserError(f"Labelling {run.name} was stopped.")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="was stopped"):
        patch.setattr(demo, "label_run", stopped)
        demo.prepare(settings)
    assert has(settings)["automatic_labels"] == 0
    demo.prepare(settings)
    found = has(settings)
    assert found["automatic_labels"] > 0
    assert found["sessions"] == found["labels"] == 1
