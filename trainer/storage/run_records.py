"""Database records of runs: registered by training, or from a run directory that was copied here."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model
from sqlalchemy import Engine, Integer, delete, select
from sqlalchemy.orm import Session

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.storage.database.open import delete_index, writing
from mxd.trainer.storage.database.tables import MetricRecord, RunRecord, utc_now
from mxd.trainer.storage.run import LOCK_FILE, METRICS_FILE, RUN_FILE, Run, run_names, runs_folder
from mxd.trainer.utils.display import unknown_run
from mxd.trainer.utils.files import atomic_directory, exclusive_lock, explained, read_json

LARGEST_NUMBER = 1e30
Whole = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
"""A finite number: the server cannot write others as JSON."""


_FIELDS: dict[str, Any] = {
    column.key: (
        Whole if isinstance(column.type, Integer) else Number | None if column.nullable else Number,
        None if column.nullable else ...,
    )
    for column in MetricRecord.__table__.columns
    if column.key != "run_id"
}
_METRIC = create_model("Metric", **_FIELDS)
Metrics = list[dict[str, Any]]
"""Training metrics of some steps, with the fields of ``MetricRecord``."""


def find_record(session: Session, name: str) -> RunRecord:
    """Return the record of a run. Raises NotFoundError if the database has no such run."""
    record = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if record is None:
        raise NotFoundError(unknown_run(name, session.scalars(select(RunRecord.name))))
    return record


def enter(session: Session, run: Run, layer: SparseLayer, target_tokens: int) -> RunRecord:
    """Find or create the record of a run and update it from its config, in the caller's transaction."""
    names = ("activation", "num_experts", "k", "input_width", "hidden_width", "output_width")
    sizes = {name: getattr(layer.config, name) for name in names}
    return update_record(session, run, target_tokens, status="training", parameters=layer.num_parameters, **sizes)


def update_record(session: Session, run: Run, target_tokens: int, **facts: Any) -> RunRecord:
    """Find or create the record of a run and update it from its config, with ``facts`` about its layer."""
    config, now = run.config, utc_now()
    record = session.scalar(select(RunRecord).where(RunRecord.name == config.name))
    if record is None:
        record = RunRecord(name=config.name, started_at=now, trained_tokens=0)
        session.add(record)
    values = {name: getattr(config, name) for name in ("language_model", "layer", "method", "seed")} | facts
    values |= {"text": config.text.dataset, "context_length": config.text.context_length, "error": None}
    values |= {"target_tokens": target_tokens, "config": config.model_dump(mode="json"), "updated_at": now}
    for name, value in values.items():
        setattr(record, name, value)
    session.flush()
    return record


def metrics_of(database: Engine, run_id: int) -> Metrics:
    columns = [MetricRecord.__table__.columns[name] for name in _FIELDS]
    with database.connect() as connection:
        rows = connection.execute(select(*columns).where(MetricRecord.run_id == run_id).order_by(MetricRecord.step))
        return [dict(row) for row in rows.mappings()]


def register_run(run: Run, database: Engine) -> None:
    """Register a trained run from its folder, unless the database already has it. Raises UserError if the metrics file
    is damaged."""
    metrics = read_metrics(run)
    with writing(database) as session:
        if session.scalar(select(RunRecord.id).where(RunRecord.name == run.name)) is not None:
            return
        record = enter(session, run, run.layer, run.config.tokens)
        record.status = "finished"
        record.trained_tokens = metrics[-1]["tokens"] if metrics else run.config.tokens
        record.target_tokens = record.trained_tokens
        record.started_at = datetime.fromtimestamp((run.folder / RUN_FILE).stat().st_mtime, UTC)
        session.add_all(MetricRecord(run_id=record.id, **metric) for metric in metrics)


def read_metrics(run: Run) -> Metrics:
    """Read the training metrics in a run's folder; none if it has no such file. Raises UserError if the file is
    damaged."""
    path = run.folder / METRICS_FILE
    if not path.is_file():
        return []
    with explained(
        f"Invalid metrics: {path}. Delete the file to use the run without training curves.", ValueError, TypeError
    ):
        return [_METRIC.model_validate(row).model_dump() for row in read_json(path)]


def adopt(run: Run, name: str, language_model: str | None, data: Path, database: Engine) -> Run:
    """Copy a run to a data folder atomically and register it, under a new name and with the local path or Hub name of
    the language model if one is given. The run's files are validated first. Raises UserError if a run of this name
    exists, or the files are damaged."""
    folder = runs_folder(data) / name
    if (folder / RUN_FILE).exists():
        raise UserError(f"Run '{name}' already exists. Choose another --name.")
    run.layer.eval()  # detects damaged weights before anything is written
    changes = {"name": name, "language_model": language_model or run.config.language_model}
    config = type(run.config).model_validate(run.config.model_dump() | changes)
    with atomic_directory(folder) as partial:
        run.copy_to(partial, config)
    adopted = Run.load(folder, data)
    register_run(adopted, database)
    return adopted


def remove_run(name: str, data: Path, database: Engine) -> None:
    """Delete a run: its index and metrics from the database, its folder from ``data``. Raises NotFoundError (there is
    no run of this name) or UserError (the run is being trained)."""
    if name not in run_names(data):
        if not _delete_records(name, database):
            raise NotFoundError(unknown_run(name, run_names(data)))
        return
    folder = runs_folder(data) / name
    with exclusive_lock(folder / LOCK_FILE, f"Run '{name}' is being trained"):
        _delete_records(name, database)
        shutil.rmtree(folder)


def _delete_records(name: str, database: Engine) -> bool:
    """Delete a run from the database. Returns whether it existed."""
    with writing(database) as session:
        record = session.scalar(select(RunRecord).where(RunRecord.name == name))
        if record is None:
            return False
        delete_index(session, record.id)
        session.execute(delete(MetricRecord).where(MetricRecord.run_id == record.id))
        session.delete(record)
        return True
