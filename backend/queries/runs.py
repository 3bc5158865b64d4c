"""Runs and how their fitting went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.errors import NoIndexError, RunNotFoundError
from backend.schemas import MetricPoint, RunDetail, RunList, RunStatus, RunSummary
from trainer.config import DEFAULT_SPAN, Method
from trainer.gate_config import GateConfig, settled
from trainer.methods import NO_TOP_K
from trainer.run import resume_command
from trainer.store import IndexRecord, MetricRecord, RunRecord

IsFitting = Callable[[str], bool | None]
"""Whether a run of this name is being fitted now; None where nobody here can know."""

Scalar = str | int | float | bool | None


def find_run(session: Session, name: str) -> RunRecord:
    """The run of this name.

    Raises:
        RunNotFoundError: the store has none.
    """
    record = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if record is None:
        known = ", ".join(session.scalars(select(RunRecord.name).order_by(RunRecord.name).limit(20))) or "none yet"
        raise RunNotFoundError(f"The store has no run {name} (there are: {known}); fit one with mxd train.")
    return record


def find_index(session: Session, run: RunRecord) -> IndexRecord:
    """The index of a run.

    Raises:
        NoIndexError: it has none.
    """
    record = session.get(IndexRecord, run.id)
    if record is None:
        raise NoIndexError(
            f"The run {run.name} has no index of contexts; make one with mxd index {run.name} --text … --tokens …."
        )
    return record


def list_runs(session: Session, is_fitting: IsFitting) -> RunList:
    """All runs, the newest first."""
    runs = session.scalars(select(RunRecord).order_by(RunRecord.started_at.desc(), RunRecord.id.desc())).all()
    indexes = {record.run_id: record for record in session.scalars(select(IndexRecord))}
    newest = select(MetricRecord.run_id, func.max(MetricRecord.step).label("step")).group_by(MetricRecord.run_id)
    last = newest.subquery()
    joined = (MetricRecord.run_id == last.c.run_id) & (MetricRecord.step == last.c.step)
    metrics = {record.run_id: record for record in session.scalars(select(MetricRecord).join(last, joined))}
    return RunList(
        runs=tuple(_summary(run, metrics.get(run.id), indexes.get(run.id), is_fitting) for run in runs),
    )


def run_detail(session: Session, name: str, is_fitting: IsFitting) -> RunDetail:
    """One run with all its metrics.

    Raises:
        RunNotFoundError: the store has none of this name.
    """
    run = find_run(session, name)
    index = session.get(IndexRecord, run.id)
    metrics = metrics_after(session, run, -1)
    return RunDetail(
        run=_summary(run, metrics[-1] if metrics else None, index, is_fitting),
        input_width=run.input_width,
        output_width=run.output_width,
        context=run.context,
        error=run.error,
        resume_command=resume_command(run.name, run.config.get("began_as", ())),
        index_text=index.text if index else None,
        config=flatten(run.config),
        metrics=tuple(point(record) for record in metrics),
    )


def metrics_after(session: Session, run: RunRecord, step: int) -> list[MetricRecord]:
    """Metrics of a run past ``step``, in order."""
    wanted = select(MetricRecord).where(MetricRecord.run_id == run.id, MetricRecord.step > step)
    return list(session.scalars(wanted.order_by(MetricRecord.step)))


def last_step(session: Session, run: RunRecord) -> int:
    """The step of a run's newest metric; -1 where it has none."""
    newest = session.scalar(select(func.max(MetricRecord.step)).where(MetricRecord.run_id == run.id))
    return -1 if newest is None else newest


def point(record: MetricRecord) -> MetricPoint:
    """A metric as it travels."""
    return MetricPoint(
        step=record.step,
        tokens=record.tokens,
        normalised_mse=record.normalised_mse,
        dead_share=record.dead_share,
        l0=record.l0,
        largest_usage=record.largest_usage,
        tokens_per_second=record.tokens_per_second,
        seconds=record.seconds,
        normalised_rank=record.normalised_rank,
        stable_rank=record.stable_rank,
        smallest_singular_value=record.smallest_singular_value,
        smallest_scaling=record.smallest_scaling,
    )


def status_of(run: RunRecord, is_fitting: IsFitting) -> RunStatus:
    """How a run stands now: one whose process was killed still says ``training`` in the store."""
    killed = run.status == "training" and is_fitting(run.name) is False
    return "stopped" if killed else cast(RunStatus, run.status)


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Scalar]:
    """Nested settings as ``optimizer.learning_rate`` and the like."""
    flat: dict[str, Scalar] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif isinstance(value, str | int | float | None):
            flat[prefix + name] = value
        else:
            flat[prefix + name] = str(value)
    return flat


def last_layer(run: RunRecord) -> int:
    """The last layer whose MLP it writes."""
    if run.method != "cross-layer-mxd":
        return run.layer
    return run.layer + cast(int, run.config.get("span") or DEFAULT_SPAN) - 1


def _summary(run: RunRecord, last: MetricRecord | None, index: IndexRecord | None, is_fitting: IsFitting) -> RunSummary:
    return RunSummary(
        name=run.name,
        status=status_of(run, is_fitting),
        language_model=run.language_model,
        layer=run.layer,
        last_layer=last_layer(run),
        method=cast(Method, run.method),
        activation=run.activation,
        num_experts=run.num_experts,
        k=run.k,
        smallest_k=cast(int | None, run.config.get("smallest_k")),
        has_top_k=run.method not in NO_TOP_K,
        gate=gate_of(run),
        hidden_width=run.hidden_width,
        parameters=run.parameters,
        origin=origin_of(run.config),
        text=run.text,
        seed=run.seed,
        tokens_wanted=run.tokens_wanted,
        tokens_done=run.tokens_done,
        started_at=aware(run.started_at),
        updated_at=aware(run.updated_at),
        last_metric=point(last) if last else None,
        indexed_tokens=index.tokens if index else None,
        experts_active=index.experts_active if index else None,
    )


def gate_of(run: RunRecord) -> str:
    """How a run finds its experts, in a few words; those that say nothing of it are of before there was a choice."""
    gate = GateConfig.model_validate(run.config.get("gate", {}))
    return settled(gate, run.num_experts, run.k).in_words()


def origin_of(config: Mapping[str, object]) -> str | None:
    """Where an imported run came from, in words; None of one that was fitted here."""
    origin = config.get("origin")
    if not isinstance(origin, Mapping):
        return None
    part = f", {origin['part']}" if origin["part"] else ""
    return f"{origin['format']}: {origin['source']}{part}"


def aware(moment: datetime) -> datetime:
    """SQLite gives times back without their zone; they were written in UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def count_contexts(session: Session) -> int:
    """Contexts of all indexes."""
    # PostgreSQL's sums of large integers are decimals.
    return int(session.scalar(select(func.sum(IndexRecord.contexts))) or 0)
