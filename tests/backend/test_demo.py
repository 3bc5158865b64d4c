"""``mxd demo``: what it makes of a sample the first time, also where it was stopped on the way."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, select
from sqlalchemy.orm import Session

from backend.commands import demo
from backend.commands.demo_rest import Beside
from backend.database import opened
from backend.notes import LabelRecord
from backend.sample import EVALUATIONS_FILE, INDEX_FILE, INFLUENCE_FILE, LABELS_FILE, SESSIONS_FILE, Sample
from backend.sessions import sessions_of
from backend.settings import Settings
from scripts.sample_runs import take_influence
from tests.language_models import saved_language_model
from tests.processes import wait_for
from tests.runs import small_world
from trainer.config import InfluenceConfig
from trainer.errors import NotFoundError, UserError
from trainer.excerpts import LEFT_OUT
from trainer.influence import build_influence
from trainer.language_model import LanguageModel
from trainer.rows_as_json import as_json
from trainer.run import Run
from trainer.store import (
    EvaluationRecord,
    ExpertRecord,
    IndexRecord,
    InfluenceRecord,
    ProbeRecord,
    RunRecord,
    delete_influences,
    sqlite_url,
    utc_now,
    writing,
)
from trainer.tables import AutomaticLabelRecord
from trainer.train import train_together

SESSIONS = {
    "No fox": {"prompt": "the old fox", "edits": [{"expert": 3, "mode": "off"}]},
    "Two layers": {
        "prompt": "the",
        "edits": [{"expert": 3, "mode": "add"}, {"expert": 5, "mode": "add", "run": "above"}],
    },
}


def evaluation(run: str) -> dict[str, Any]:
    """A row as ``EVALUATIONS_FILE`` has it."""
    row = {"subject": run, "text": "t", "fingerprint": "f", "settings": {}, "weights": "w", "result": {"kl": 0.5}}
    table = EvaluationRecord.__table__
    assert isinstance(table, Table)
    return as_json(table, {**row, "sequences": b"abc", "created_at": utc_now()}, LEFT_OUT) | {"run": run}


def probes(run: str, level: str) -> dict[str, Any]:
    """A row of the probes in ``EVALUATIONS_FILE``."""
    row = {"labels": "l", "fingerprint": "f", "level": level, "settings": {}, "result": {"examples": 5}}
    table = ProbeRecord.__table__
    assert isinstance(table, Table)
    return as_json(table, {**row, "created_at": utc_now()}, LEFT_OUT) | {"run": run}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a sample: two runs, their text, a label, sessions and an evaluation, and no store yet."""
    world = small_world(tmp_path)
    language_model = str(saved_language_model(tmp_path / "language-model"))
    configs = [
        world.config("small", language_model=language_model),
        world.config("above", language_model=language_model, layer=2),
    ]
    train_together(configs, world.data, world.store, world.language_model)
    world.store.dispose()
    sample = tmp_path / "sample"
    shutil.copytree(world.data / "runs", sample / "runs")
    shutil.copy(world.text.text, sample / "text.jsonl")
    (sample / "runs" / "above" / "units.json").write_text('{"5": 2.5}')
    written = {
        INDEX_FILE: {"first": "small", "text": {"text": "text.jsonl", "context": 16}, "tokens": 1600},
        LABELS_FILE: {"small": {"3": "A fox"}},
        SESSIONS_FILE: {"small": SESSIONS},
        EVALUATIONS_FILE: {
            "evaluations": [evaluation("small"), evaluation("not here")],
            "probes": [probes("small", "text"), probes("small", "token"), probes("not here", "text")],
        },
    }
    for name, content in written.items():
        (sample / name).write_text(json.dumps(content), "utf-8")
    return Settings(data=sample, store=sqlite_url(tmp_path / "elsewhere"), device="cpu")


def has(settings: Settings) -> dict[str, int]:
    """How much of everything is in the store."""
    with opened(settings.store_url) as store, Session(store) as session:
        tables = (RunRecord, IndexRecord, LabelRecord, EvaluationRecord, ProbeRecord, AutomaticLabelRecord)
        counts = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}
        return counts | {"sessions": len(sessions_of(session, "small"))}


def test_everything_is_there_once_and_what_is_deleted_stays_away(settings: Settings) -> None:
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
    with opened(settings.store_url) as store, Session(store) as session, session.begin():
        first, second = sessions_of(session, "small")
        assert [first.name, second.name] == ["No fox", "Two layers"]
        assert second.units["above"] == {"5": 2.5}
        session.delete(first)
    demo.prepare(settings)
    assert has(settings) == found | {"sessions": 1}


def test_what_experts_do_is_entered_where_weights_and_index_are_the_same(settings: Settings) -> None:
    demo.prepare(settings)
    with opened(settings.store_url) as store:
        run = Run.load("small", settings.data)
        build_influence(run, InfluenceConfig(), LanguageModel.load(run.language_model_source, "cpu"), store)
    measured = influences(settings)
    take_influence(settings.data, settings.store_url, ["small"])

    def entered_anew(**changed: Any) -> dict[int, list[float]]:
        path = settings.data / INFLUENCE_FILE
        shipped = json.loads(gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(json.dumps({"small": {**shipped["small"], **changed}}).encode()))
        with opened(settings.store_url) as store:
            with writing(store) as session:
                delete_influences(session, 1)
            Sample.open(settings.data).enter_influence(Run.load("small", settings.data), store)
        path.write_bytes(gzip.compress(json.dumps(shipped).encode()))
        return influences(settings)

    again = entered_anew()
    assert again.keys() == measured.keys()
    assert all(again[expert] == pytest.approx(measured[expert], rel=1e-5) for expert in measured)
    assert entered_anew(weights="others") == {}
    assert entered_anew(index={}) == {}
    assert entered_anew(indexed_tokens=1) == {}, "somebody has indexed it anew"
    (settings.data / INFLUENCE_FILE).write_bytes(b"broken")
    with pytest.raises(UserError, match="damaged"):
        demo.prepare(settings)


def influences(settings: Settings) -> dict[int, list[float]]:
    """Of the first run: what is kept with each measured expert, beside what is kept of it by itself."""
    with opened(settings.store_url) as store, Session(store) as session:
        rows = session.execute(
            select(InfluenceRecord, ExpertRecord)
            .join(
                ExpertRecord,
                (ExpertRecord.run_id == InfluenceRecord.run_id) & (ExpertRecord.expert == InfluenceRecord.expert),
            )
            .where(InfluenceRecord.run_id == 1)
        )
        return {it.expert: [it.kl_up, it.output_share, it.promoted[0][1], kept.kl_up] for it, kept in rows}


def test_the_first_run_is_ready_before_the_others_and_is_the_newest(settings: Settings) -> None:
    assert demo.prepare_first(settings) == 1
    with opened(settings.store_url) as store, Session(store) as session:
        assert list(session.scalars(select(RunRecord.name).order_by(RunRecord.started_at.desc()))) == ["small", "above"]
        indexed = session.scalars(select(RunRecord.name).join(IndexRecord)).all()
    assert list(indexed) == ["small"]
    assert has(settings)["evaluations"] == 1


def test_the_others_are_indexed_beside_and_end_with_the_server_without_a_word(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    demo.prepare_first(settings)
    said: list[str] = []
    with Beside(settings) as beside:
        beside.after(said.append)("http://here")
        assert said == ["http://here"]
        wait_for(lambda: has(settings)["indexes"] == 2)
    assert beside.exit_code is not None
    with Beside(settings) as again:
        again.begin()
    assert again.exit_code is not None
    told = capfd.readouterr().err
    assert "Stopping" not in told
    assert "interrupted" not in told


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
    assert (found["sessions"], found["labels"]) == (2, 1)


def test_where_there_is_no_sample_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="git checkout"):
        demo.prepare(Settings(data=tmp_path, store=sqlite_url(tmp_path)))
