"""Build the demo in data/demo from trained runs.

    python scripts/build_demo.py runs data/demo DATA NAME…           copy runs, weights in 5 bits
    python scripts/build_demo.py database data/demo DATABASE NAME…   write database.sqlite.xz

Between the two, run ``mxd index`` and ``mxd evaluate`` with ``--data data/demo --database sqlite:///DATABASE`` in the
checkout. Everything is then measured on the shipped weights, and paths are relative. The demo also shows the
benchmark that ``mxd benchmark`` writes with ``--data data/demo``.
``database`` also enters ``labels.json`` (run -> expert -> label) and ``sessions.json`` (run -> name -> steering
session), and lists the runs in the order of NAME.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, func, select, update
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import opened
from mxd.backend.schemas.steering import SteeringRequest
from mxd.backend.settings import DEMO_DATABASE
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.search import delete_search
from mxd.trainer.storage.database.tables import (
    ExampleRecord,
    IndexRecord,
    MetricRecord,
    RoutedRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)
from mxd.trainer.storage.run import TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.storage.run_records import read_metrics, register_run
from scripts.quantize import quantize_file

LABELS_FILE = "labels.json"
SESSIONS_FILE = "sessions.json"
TOP_EXAMPLES = 8
"""Top examples per expert that are shipped of the 20 that ``mxd index`` stores, to save space."""
EXAMPLES_PER_BIN = 1
"""Random examples per expert and activation bin that are shipped of the 3 that ``mxd index`` stores, to save space."""
ROUTED_SEQUENCES = 96
"""Sequences per run whose complete routing is shipped of the 1,024 that ``mxd index`` stores, to save space."""


def copy_runs(demo: Path, data: Path, names: list[str]) -> None:
    """Copy runs into the demo, with weights in 5 bits."""
    for name in names:
        run = Run.load(name, data)
        folder = run.save_pretrained(runs_folder(demo) / name, run.config.language_model)
        (folder / "README.md").unlink()  # the card is for the hub
        shutil.rmtree(folder / TOKENIZER_FOLDER)  # the language model has it
        weights = folder / WEIGHTS_FILE
        quantize_file(run.folder / WEIGHTS_FILE, weights)
        print(f"{name}: {weights.stat().st_size / 1e6:.1f} MB")


def pack_database(demo: Path, database: Path, names: list[str]) -> None:
    """Write the demo's database from a copy of ``database``."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "database.sqlite"
        shutil.copy(database, copy)
        with opened(f"sqlite:///{copy}") as engine:
            _finish(engine, demo, names)
        _vacuum(copy)
        with copy.open("rb") as source, lzma.open(demo / DEMO_DATABASE, "wb", preset=9) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        sizes = [path.stat().st_size / 1e6 for path in (copy, demo / DEMO_DATABASE)]
    print(f"{sizes[0]:.1f} MB, compressed {sizes[1]:.1f} MB")


def _finish(engine: Engine, demo: Path, names: list[str]) -> None:
    runs = {name: Run.load(name, demo) for name in names}
    for run in runs.values():
        register_run(run, engine)
    with writing(engine) as session:
        for place, run in enumerate(runs.values()):
            _enter_training(session, run, place)
        _drop_routed_sequences(session)
        _drop_examples(session, list(runs.values()))
        for run in runs.values():
            _enter_labels(session, run, _read(demo / LABELS_FILE).get(run.name, {}))
            _enter_sessions(session, runs, run, _read(demo / SESSIONS_FILE).get(run.name, {}))


def _enter_training(session: Session, run: Run, place: int) -> None:
    """Enter metrics and times. The newest run is listed first."""
    record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
    metrics = read_metrics(run)
    record.started_at = utc_now() - timedelta(days=1, minutes=place)
    record.updated_at = record.started_at + timedelta(seconds=metrics[-1]["seconds"])
    session.execute(delete(MetricRecord).where(MetricRecord.run_id == record.id))
    session.add_all(MetricRecord(run_id=record.id, **metric) for metric in metrics)


def _drop_routed_sequences(session: Session) -> None:
    """Keep the first sequences. Which ones are in the sample is random, and the same for every run of one text."""
    first_ones = select(RoutedRecord.sequence).distinct().order_by(RoutedRecord.sequence).limit(ROUTED_SEQUENCES)
    session.execute(delete(RoutedRecord).where(RoutedRecord.sequence.not_in(first_ones.scalar_subquery())))


def _drop_examples(session: Session, runs: Sequence[Run]) -> None:
    """Keep some examples of each expert, and the sequences of what is left, without the search index."""
    session.execute(delete(ExampleRecord).where(ExampleRecord.bin == 0, ExampleRecord.rank >= TOP_EXAMPLES))
    session.execute(delete(ExampleRecord).where(ExampleRecord.bin > 0, ExampleRecord.rank >= EXAMPLES_PER_BIN))
    for run in runs:
        run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == run.name)).one()
        used = [select(table.sequence).where(table.run_id == run_id) for table in (ExampleRecord, RoutedRecord)]
        session.execute(
            delete(SequenceRecord).where(
                SequenceRecord.run_id == run_id, *(SequenceRecord.sequence.not_in(query) for query in used)
            )
        )
        left = select(func.count()).where(ExampleRecord.run_id == run_id).scalar_subquery()
        session.execute(update(IndexRecord).where(IndexRecord.run_id == run_id).values(examples=left))
        delete_search(session, run_id)  # ``mxd demo`` builds it


def _enter_labels(session: Session, run: Run, labels: dict[str, str]) -> None:
    for expert, label in labels.items():
        notes.set_label(session, run.name, int(expert), label)


def _enter_sessions(session: Session, runs: dict[str, Run], run: Run, written: dict[str, Any]) -> None:
    """The newest session is listed first."""
    session.execute(delete(notes.SessionRecord).where(notes.SessionRecord.run == run.name))
    for name, values in reversed(written.items()):
        steering = SteeringRequest.model_validate(values)
        units: dict[str, dict[int, float]] = {run.name: {}}
        for edit in steering.edits:
            source = runs[edit.run or run.name]
            units.setdefault(source.name, {})[edit.expert] = source.units[edit.expert]
        notes.save_session(session, run.name, name, steering.model_dump(mode="json"), notes.json_units(units))


def _vacuum(path: Path) -> None:
    """Rewrite the database as one compact file without a write-ahead log."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content


def main() -> None:
    """Run one of the two steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("runs", "database"))
    parser.add_argument("demo", type=Path)
    parser.add_argument("source", type=Path, help="data folder of the runs, or SQLite file of the database")
    parser.add_argument("names", nargs="+")
    given = parser.parse_args()
    step = {"runs": copy_runs, "database": pack_database}[given.step]
    step(given.demo, given.source, given.names)


if __name__ == "__main__":
    main()
