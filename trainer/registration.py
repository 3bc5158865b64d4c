"""How a run stands in the store: entered when it is fitted, or from its folder when that has come from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from trainer.errors import NotFoundError, UserError
from trainer.files import read_json, write_whole
from trainer.layers.sparse import SparseLayer
from trainer.run import METRICS_FILE, RUN_FILE, Run
from trainer.store import MetricRecord, RunRecord, utc_now, writing


@dataclass(frozen=True)
class Metric:
    """What was measured at one step; the columns of ``MetricRecord``."""

    step: int
    tokens: int
    normalised_mse: float
    dead_share: float
    l0: float
    largest_usage: float
    tokens_per_second: float
    seconds: float
    normalised_rank: float | None = None
    stable_rank: float | None = None
    smallest_singular_value: float | None = None
    smallest_scaling: float | None = None


def registered(session: Session, name: str) -> RunRecord:
    """The record of a run.

    Raises:
        NotFoundError: the store has none.
    """
    record = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if record is None:
        raise NotFoundError(f"The store has no run {name}; fit it, or register it, into this store first.")
    return record


def enter(session: Session, run: Run, layer: SparseLayer, tokens_wanted: int) -> RunRecord:
    """Find or make the record of a run, and bring what its settings say up to date, in the caller's transaction."""
    config = run.config
    record = session.scalar(select(RunRecord).where(RunRecord.name == config.name))
    if record is None:
        record = RunRecord(name=config.name, started_at=utc_now(), tokens_done=0)
        session.add(record)
    record.status, record.error = "training", None
    record.language_model, record.layer, record.method = config.language_model, config.layer, config.method
    record.activation, record.k = layer.config.activation, layer.config.k
    record.num_experts, record.input_width = layer.config.num_experts, layer.config.input_width
    record.hidden_width, record.output_width = layer.config.hidden_width, layer.config.output_width
    record.parameters, record.text, record.seed = layer.num_parameters, config.text.text, config.seed
    record.context, record.tokens_wanted = config.text.context, tokens_wanted
    record.config = config.model_dump(mode="json")
    record.updated_at = utc_now()
    session.flush()
    return record


def forget_metrics_after(session: Session, record: RunRecord, step: int) -> None:
    """Delete metrics past a step: they will be measured again."""
    session.execute(delete(MetricRecord).where(MetricRecord.run_id == record.id, MetricRecord.step > step))


def metrics_of(store: Engine, run_id: int) -> list[Metric]:
    """Every metric of a run, in order."""
    names = Metric.__dataclass_fields__
    with Session(store) as session:
        records = session.scalars(
            select(MetricRecord).where(MetricRecord.run_id == run_id).order_by(MetricRecord.step)
        ).all()
        return [Metric(**{name: getattr(record, name) for name in names}) for record in records]


def write_metrics(run: Run, metrics: Sequence[Metric]) -> None:
    """Put a run's metrics beside its weights."""
    write_whole(run.folder / METRICS_FILE, json.dumps([asdict(metric) for metric in metrics]) + "\n")


def register_run(run: Run, store: Engine) -> None:
    """Enter a finished run that has come as a folder into a store that does not know it; leave it be in one that does.

    Raises:
        UserError: its metrics file is damaged.
    """
    metrics = _read_metrics(run)
    with writing(store) as session:
        if session.scalar(select(RunRecord.id).where(RunRecord.name == run.name)) is not None:
            return
        record = enter(session, run, run.layer, run.config.tokens)
        record.status = "finished"
        record.tokens_done = metrics[-1].tokens if metrics else run.config.tokens
        record.tokens_wanted = record.tokens_done
        record.started_at = datetime.fromtimestamp((run.folder / RUN_FILE).stat().st_mtime, UTC)
        session.add_all(MetricRecord(run_id=record.id, **asdict(metric)) for metric in metrics)


def _read_metrics(run: Run) -> list[Metric]:
    path = run.folder / METRICS_FILE
    if not path.is_file():
        return []
    try:
        return [Metric(**metric) for metric in read_json(path)]
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged; delete it, and the run is shown without its curves.") from error
