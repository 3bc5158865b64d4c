"""The demo is built from trained runs."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of, sessions_of
from mxd.backend.database.demo import unpacked_database
from mxd.backend.database.engine import opened
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.database.search import count_documents
from mxd.trainer.storage.database.tables import (
    ExampleRecord,
    IndexRecord,
    MetricRecord,
    RoutedRecord,
    RunRecord,
    SequenceRecord,
)
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import read_metrics
from mxd.trainer.training.train import train_layers
from scripts import build_demo
from scripts.quantize import quantize_file
from tests.helpers.runs import saved_language_model, small_world


def test_runs_database_labels_and_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_world(tmp_path)
    source = str(saved_language_model(tmp_path / "language-model"))
    configs = [world.config("above", layer=2, language_model=source), world.config("small", language_model=source)]
    train_layers(configs, world.data, world.database, world.language_model)
    world.database.dispose()
    demo = tmp_path / "demo"
    with monkeypatch.context() as patch:
        quantized = Mock(side_effect=quantize_file)
        patch.setattr(build_demo, "quantize_file", quantized)
        build_demo.copy_runs(demo, world.data, ["small", "above"])
    shipped = [Run.load(name, demo).folder / "layer.safetensors" for name in ("small", "above")]
    assert [call.args[1] for call in quantized.call_args_list] == shipped
    assert all(path.is_file() for path in shipped)
    with opened(sqlite_url(tmp_path / "work")) as database:
        for name in ("above", "small"):
            build_index(Run.load(name, demo), IndexConfig(text=world.text, tokens=1600), world.language_model, database)
    small, above = (min(Run.load(name, demo).units) for name in ("small", "above"))
    (demo / "labels.json").write_text(json.dumps({"small": {small: "A fox"}}))
    both = [{"expert": small, "mode": "add"}, {"expert": above, "mode": "add", "run": "above"}]
    sessions = {
        "No fox": {"prompt": "the old fox", "edits": [{"expert": small, "mode": "ablate"}]},
        "Two layers": {"prompt": "the", "edits": both},
    }
    (demo / "sessions.json").write_text(json.dumps({"small": sessions}))
    monkeypatch.setattr(build_demo, "ROUTED_SEQUENCES", 7)
    monkeypatch.setattr(build_demo, "TOP_EXAMPLES", 2)
    build_demo.pack_database(demo, tmp_path / "work" / "mxd.sqlite", ["small", "above"])
    metrics = {name: read_metrics(Run.load(name, demo)) for name in ("small", "above")}
    with opened(unpacked_database(demo)) as database, Session(database) as session:
        for run in session.scalars(select(RunRecord)):
            stored = session.scalars(select(MetricRecord.step).where(MetricRecord.run_id == run.id).order_by("step"))
            assert list(stored) == [metric["step"] for metric in metrics[run.name]] != []
            # The database stores times in whole microseconds.
            duration = (run.updated_at - run.started_at).total_seconds()
            assert duration == pytest.approx(metrics[run.name][-1]["seconds"], abs=1e-6)
        assert list(session.scalars(select(RunRecord.name).order_by(RunRecord.started_at.desc()))) == ["small", "above"]
        assert session.scalar(select(func.count()).select_from(ExpertRecord)) == 80
        assert session.scalar(select(func.count()).select_from(RoutedRecord)) == 14
        examples = session.execute(select(ExampleRecord.bin, func.max(ExampleRecord.rank)).group_by(ExampleRecord.bin))
        last_ranks = dict(examples.all())
        assert last_ranks.pop(0) == 1
        assert set(last_ranks.values()) == {0}
        stored = session.scalar(select(func.count()).select_from(ExampleRecord))
        assert session.scalar(select(func.sum(IndexRecord.examples))) == stored
        used = select(ExampleRecord.sequence).union(select(RoutedRecord.sequence))
        assert set(session.scalars(select(SequenceRecord.sequence))) == set(session.scalars(used))
        assert count_documents(session, 1) > 20
        assert labels_of(session, "small") == {small: "A fox"}
        first, second = sessions_of(session, "small")
        assert (first.name, second.name) == ("No fox", "Two layers")
        assert second.units["above"] == {str(above): Run.load("above", demo).units[above]}
