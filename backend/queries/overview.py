"""Whole columns of a run's experts, for figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.notes import labels_of
from backend.queries.columns import among
from trainer.store import ExpertRecord, IndexRecord, RunRecord


@dataclass(frozen=True)
class Point:
    """One expert of the scatter."""

    expert: int
    usage: float
    mean: float
    label: str | None


@dataclass(frozen=True)
class Indexed:
    """A run with its index, as the frontier shows it."""

    run: str
    language_model: str
    layer: int
    method: str
    k: int
    num_experts: int
    normalised_mse: float


def usages(session: Session, run: RunRecord) -> NDArray[np.float64]:
    """Usage of every active expert, ascending."""
    wanted = select(ExpertRecord.usage).where(ExpertRecord.run_id == run.id, ExpertRecord.usage > 0)
    return np.array(session.scalars(wanted.order_by(ExpertRecord.usage)).all(), dtype=np.float64)


def sample(session: Session, run: RunRecord, count: int) -> tuple[list[Point], int]:
    """At most ``count`` active experts, the same ones every time, and how many there are."""
    wanted = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.usage > 0)
    experts = np.sort(np.array(session.scalars(wanted).all(), dtype=np.int64))
    chosen = experts
    if len(experts) > count:
        chosen = np.random.default_rng(0).choice(experts, size=count, replace=False)
    ids = chosen.tolist()
    rows = session.execute(
        select(ExpertRecord.expert, ExpertRecord.usage, ExpertRecord.mean)
        .where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, ids))
        .order_by(ExpertRecord.expert)
    ).all()
    labels = labels_of(session, run.name, ids)
    return [Point(expert, usage, mean, labels.get(expert)) for expert, usage, mean in rows], len(experts)


def indexed_runs(session: Session) -> list[Indexed]:
    """Every run that has an index, by method and K."""
    wanted = (
        select(RunRecord, IndexRecord.normalised_mse)
        .join(IndexRecord, IndexRecord.run_id == RunRecord.id)
        .order_by(RunRecord.method, RunRecord.k, RunRecord.name)
    )
    return [
        Indexed(run.name, run.language_model, run.layer, run.method, run.k, run.num_experts, error)
        for run, error in session.execute(wanted)
    ]
