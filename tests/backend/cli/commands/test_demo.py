"""``mxd demo``: preparation of a demo on first use, also after an interruption."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, select
from sqlalchemy.orm import Session

from mxd.backend.cli.commands import demo
from mxd.backend.cli.commands.demo import BackgroundIndexer
from mxd.backend.database.annotations import LabelRecord
from mxd.backend.database.engine import opened
from mxd.backend.database.steering_sessions import sessions_of
from mxd.backend.export.sample_data import (
    ABLATIONS_FILE,
    EVALUATIONS_FILE,
    INDEX_FILE,
    LABELS_FILE,
    SESSIONS_FILE,
    Sample,
)
from mxd.backend.settings import Settings
from mxd.trainer.analysis.ablation import build_ablations
from mxd.trainer.config import AblationConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import delete_ablations, sqlite_url, writing
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS, as_json
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    AutomaticLabelRecord,
    EvaluationRecord,
    ExpertRecord,
    IndexRecord,
    ProbeRecord,
    RunRecord,
    utc_now,
)
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layers
from scripts.sample_runs import write_ablations
from tests.helpers.language_models import saved_language_model
from tests.helpers.processes import wait_for
from tests.helpers.runs import small_world

SESSIONS = {
    "No fox": {"prompt": "the old fox", "edits": [{"expert": 3, "mode": "ablate"}]},
    "Two layers": {
        "prompt": "the",
        "edits": [{"expert": 3, "mode": "add"}, {"expert": 5, "mode": "add", "run": "above"}],
    },
}


def evaluation(run: str) -> dict[str, Any]:
    """Return an evaluation in the format of ``EVALUATIONS_FILE``."""
    row = {"subject": run, "text": "t", "fingerprint": "f", "settings": {}, "weights": "w", "result": {"kl": 0.5}}
    table = EvaluationRecord.__table__
    assert isinstance(table, Table)
    return as_json(table, {**row, "sequences": b"abc", "created_at": utc_now()}, EXCLUDED_COLUMNS) | {"run": run}


def probes(run: str, level: str) -> dict[str, Any]:
    """Return a probe in the format of ``EVALUATIONS_FILE``."""
    row = {"labels": "l", "fingerprint": "f", "level": level, "settings": {}, "result": {"examples": 5}}
    table = ProbeRecord.__table__
    assert isinstance(table, Table)
    return as_json(table, {**row, "created_at": utc_now()}, EXCLUDED_COLUMNS) | {"run": run}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings for a demo with two runs, their text, a label, sessions and an evaluation, without a database."""
    world = small_world(tmp_path)
    language_model = str(saved_language_model(tmp_path / "language-model"))
    configs = [
        world.config("small", language_model=language_model),
        world.config("above", language_model=language_model, layer=2),
    ]
    train_layers(configs, world.data, world.database, world.language_model)
    world.database.dispose()
    sample = tmp_path / "sample"
    shutil.copytree(world.data / "runs", sample / "runs")
    shutil.copy(world.text.dataset, sample / "text.jsonl")
    (sample / "runs" / "above" / "units.json").write_text('{"5": 2.5}')
    written = {
        INDEX_FILE: {"first": "small", "text": {"dataset": "text.jsonl", "context_length": 16}, "tokens": 1600},
        LABELS_FILE: {"small": {"3": "A fox"}},
        SESSIONS_FILE: {"small": SESSIONS},
        EVALUATIONS_FILE: {
            "evaluations": [evaluation("small"), evaluation("not here")],
            "probes": [probes("small", "text"), probes("small", "token"), probes("not here", "text")],
        },
    }
    for name, content in written.items():
        (sample / name).write_text(json.dumps(content), "utf-8")
    return Settings(data=sample, database=sqlite_url(tmp_path / "elsewhere"), device="cpu")


def has(settings: Settings) -> dict[str, int]:
    """Return the number of rows of each table."""
    with opened(settings.database_url) as database, Session(database) as session:
        tables = (RunRecord, IndexRecord, LabelRecord, EvaluationRecord, ProbeRecord, AutomaticLabelRecord)
        counts = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
        return counts | {"sessions": len(sessions_of(session, "small"))}


def test_preparing_twice_changes_nothing_and_restores_nothing_deleted(settings: Settings) -> None:
    demo.prepare(settings)
    found = has(settings)
    assert found["automatic_labels"] > 0
    assert {name: count for name, count in found.items() if name != "automatic_labels"} == {
        "runs": 2,
        "indexes": 2,
        "labels": 1,
        "evaluations": 1,
        "probes": 2,
        "sessions": 2,
    }
    with opened(settings.database_url) as database, Session(database) as session, session.begin():
        first, second = sessions_of(session, "small")
        assert [first.name, second.name] == ["No fox", "Two layers"]
        assert second.units["above"] == {"5": 2.5}
        session.delete(first)
    demo.prepare(settings)
    assert has(settings) == found | {"sessions": 1}


def test_stored_ablations_are_entered_only_for_the_same_weights_and_index(settings: Settings) -> None:
    demo.prepare(settings)
    with opened(settings.database_url) as database:
        run = Run.load("small", settings.data)
        build_ablations(run, AblationConfig(), LanguageModel.load(run.language_model_source, "cpu"), database)
    measured = influences(settings)
    write_ablations(settings.data, settings.database_url, ["small"])

    def entered_anew(**changed: Any) -> dict[int, list[float]]:
        path = settings.data / ABLATIONS_FILE
        shipped = json.loads(gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(json.dumps({"small": {**shipped["small"], **changed}}).encode()))
        with opened(settings.database_url) as database:
            with writing(database) as session:
                delete_ablations(session, 1)
            Sample.open(settings.data).enter_ablations(Run.load("small", settings.data), database)
        path.write_bytes(gzip.compress(json.dumps(shipped).encode()))
        return influences(settings)

    again = entered_anew()
    assert again.keys() == measured.keys()
    assert all(again[expert] == pytest.approx(measured[expert], rel=1e-5) for expert in measured)
    assert entered_anew(weights="others") == {}
    assert entered_anew(index={}) == {}
    assert entered_anew(indexed_tokens=1) == {}, "the run has been indexed again"
    (settings.data / ABLATIONS_FILE).write_bytes(b"broken")
    with pytest.raises(UserError, match="damaged"):
        demo.prepare(settings)


def influences(settings: Settings) -> dict[int, list[float]]:
    """Return the stored measurements of the first run, by expert."""
    with opened(settings.database_url) as database, Session(database) as session:
        rows = session.execute(
            select(AblationRecord, ExpertRecord)
            .join(
                ExpertRecord,
                (ExpertRecord.run_id == AblationRecord.run_id) & (ExpertRecord.expert == AblationRecord.expert),
            )
            .where(AblationRecord.run_id == 1)
        )
        return {
            it.expert: [it.kl_amplified, it.output_share, it.promoted[0][1], kept.kl_amplified] for it, kept in rows
        }


def test_the_first_run_is_prepared_first_and_listed_first(settings: Settings) -> None:
    assert demo.prepare_first(settings) == 1
    with opened(settings.database_url) as database, Session(database) as session:
        assert list(session.scalars(select(RunRecord.name).order_by(RunRecord.started_at.desc()))) == ["small", "above"]
        indexed = session.scalars(select(RunRecord.name).join(IndexRecord)).all()
    assert list(indexed) == ["small"]
    assert has(settings)["evaluations"] == 1


def test_the_background_process_indexes_and_stops_silently_with_the_server(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    demo.prepare_first(settings)
    urls: list[str] = []
    with BackgroundIndexer(settings) as indexer:
        indexer.start_after(urls.append)("http://here")
        assert urls == ["http://here"]
        wait_for(lambda: has(settings)["indexes"] == 2)
    assert indexer.exit_code is not None
    with BackgroundIndexer(settings) as again:
        again.start()
    assert again.exit_code is not None
    printed = capfd.readouterr().err
    assert "Stopping" not in printed
    assert "Interrupted" not in printed


def test_an_interrupted_preparation_continues_at_the_next_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(run: Run, *_rest: object) -> None:
        raise UserError(f"Labelling {run.name} was stopped.")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="was stopped"):
        patch.setattr(demo, "label_run", stopped)
        demo.prepare(settings)
    assert has(settings)["automatic_labels"] == 0
    demo.prepare(settings)
    found = has(settings)
    assert found["automatic_labels"] > 0
    assert (found["sessions"], found["labels"]) == (2, 1)


def test_a_missing_demo_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="git checkout"):
        demo.prepare(Settings(data=tmp_path, database=sqlite_url(tmp_path)))
