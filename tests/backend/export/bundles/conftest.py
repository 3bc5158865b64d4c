"""One run with everything that a bundle can hold, packed once, and bundles whose entries were changed."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, insert
from sqlalchemy.orm import Session

from mxd.backend.database import annotations
from mxd.backend.database.engine import opened, reading
from mxd.backend.export.bundles.pack import pack
from mxd.backend.schemas.experts import AnnotationChange
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.config.analysis import AblationConfig, IndexConfig, RecurrenceConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS, from_json
from mxd.trainer.storage.database.tables import EvaluationRecord, MeasurementRecord, ProbeRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers import TEST_DEMO
from tests.helpers.databases import ablation, automatic_label, match, steering_strength
from tests.helpers.runs import World, small_world

Entries = dict[str, bytes]
_INTERVAL = {"value": 0.5, "low": 0.25, "high": 0.75}
JACOBIAN = {"tokens": 8, "directions": 4} | dict.fromkeys(
    ("random", "data", "random_control", "data_control"), _INTERVAL
)
"""Part of an evaluation that older programs did not write."""


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The run ``small`` with an index, measurements, and everything that users can write."""
    made = small_world(tmp_path_factory.mktemp("world"))
    build_index(made.train(), IndexConfig(text=made.text, tokens=2048), made.language_model, made.database)
    made.database.dispose()
    with opened(sqlite_url(made.data)) as database, writing(database) as session:
        _annotate(session)
        _measure(session, made.data)
    return made


def _annotate(session: Session) -> None:
    annotations.annotate(
        session, "small", 3, AnnotationChange(label="foxes", note="seen in songs", add_tags=("animals",))
    )
    annotations.make_list(session, "small", "good", [3, 1])
    edit = {"expert": 3, "mode": "add", "strength": 2.0}
    token = {"id": 3, "text": " again", "delta_log_probability": 0.5}
    texts = {"text": "again", "result": {"baseline": [[token]], "steered": [[token]]}}
    steering = {"prompt": "One day", "edits": [edit]}
    annotations.save_session(session, "small", "louder", steering, {"small": {"3": 1.5}}, **texts)
    annotations.set_label(session, "another", 0, "of another run")


def _measure(session: Session, data: Path) -> None:
    """Measurements of the demo, as if they were of this run, and on a text of this machine."""
    texts: dict[type[EvaluationRecord | ProbeRecord], str] = {EvaluationRecord: "text", ProbeRecord: "labels"}
    for record, path in texts.items():
        table: Table = record.__table__  # type: ignore[assignment]
        row = sample_rows(table.name)[0] | {path: str(data / "held.jsonl")}
        row["result"] = _few_experts(row["result"])
        if record is EvaluationRecord:
            row["settings"]["text"] |= {next(iter(row["settings"]["text"])): str(data / "held.jsonl")}
            row |= {"subject": "small"}
            row["result"] = row["result"] | {"language_model": str(data / "lm"), "jacobian": JACOBIAN}
        session.execute(insert(table), [row | {"run_id": 1}])
        if record is EvaluationRecord:
            session.execute(insert(table), [row | {"run_id": 1, "subject": f"small at K {row['result']['k']}"}])
    measured = ablation(1, 3)
    compared = RecurrenceConfig(text=TextConfig(dataset=str(data / "held.jsonl")), tokens=2000)
    # Embeddings may have more rows than the tokenizer has tokens.
    measured.promoted, measured.suppressed = [[5, 0.5], [4000, 0.25]], []
    session.add_all(
        [
            measured,
            match(1, 3, "other"),
            MeasurementRecord(run_id=1, command="recurrence", settings=compared.model_dump(mode="json")),
            MeasurementRecord(run_id=1, command="ablate", settings=AblationConfig().model_dump(mode="json")),
            automatic_label(1, 3, "features", "animals", 0.75),
            steering_strength(1, 3, "none", 0.0),
            steering_strength(1, 3, "expert", 2.0),
        ]
    )


def sample_rows(table: str) -> list[dict[str, Any]]:
    tables: dict[str, Table] = {it.__tablename__: it.__table__ for it in (EvaluationRecord, ProbeRecord)}  # type: ignore[misc]
    stored = json.loads((TEST_DEMO / "evaluations.json").read_text("utf-8"))[table]
    rows = [{name: value for name, value in row.items() if name != "run"} for row in stored]
    return [from_json(tables[table], row, EXCLUDED_COLUMNS) for row in rows]


def _few_experts(value: Any) -> Any:
    """A result whose experts are among the 40 of ``small``."""
    if isinstance(value, Mapping):
        return {key: item % 40 if key == "expert" else _few_experts(item) for key, item in value.items()}
    return value


def packed(world: World, path: Path) -> Path:
    with opened(sqlite_url(world.data)) as database, reading(database) as session:
        assert pack(session, Run.load("small", world.data), path, NO_CALLBACKS) == path.stat().st_size
    return path


def entries_of(bundle: Path) -> Entries:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_bundle(path: Path, entries: Entries) -> Path:
    """Write a bundle of these entries, whose manifest says what they are."""
    manifest = json.loads(entries["manifest.json"])
    manifest["entries"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in entries.items()
        if name != "manifest.json"
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (entries | {"manifest.json": json.dumps(manifest).encode()}).items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="session")
def bundle(world: World) -> Path:
    return packed(world, world.data.parent / "small.mxd")


@pytest.fixture(scope="session")
def entries(bundle: Path) -> Entries:
    return entries_of(bundle)
