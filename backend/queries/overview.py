"""Whole columns of a run's experts, for figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_of
from mxd.backend.database.sql import among
from mxd.trainer.storage.database.tables import ExpertRecord, IndexRecord, RunRecord


@dataclass(frozen=True)
class Point:
    """One expert of the scatter."""

    expert: int
    density: float
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
    normalized_mse: float


def densities(session: Session, run: RunRecord) -> NDArray[np.float64]:
    """Return the density of every active expert, ascending."""
    query = select(ExpertRecord.density).where(ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    return np.array(session.scalars(query.order_by(ExpertRecord.density)).all(), dtype=np.float64)


def sample(session: Session, run: RunRecord, count: int) -> tuple[list[Point], int]:
    """Return at most ``count`` active experts, a fixed sample, and their total number."""
    query = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    experts = np.sort(np.array(session.scalars(query).all(), dtype=np.int64))
    chosen = experts
    if len(experts) > count:
        chosen = np.random.default_rng(0).choice(experts, size=count, replace=False)
    ids = chosen.tolist()
    rows = session.execute(
        select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.mean_activation)
        .where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, ids))
        .order_by(ExpertRecord.expert)
    ).all()
    labels = labels_of(session, run.name, ids)
    return [Point(expert, density, mean, labels.get(expert)) for expert, density, mean in rows], len(experts)


def indexed_runs(session: Session) -> list[Indexed]:
    """Return all indexed runs, sorted by method and K."""
    query = (
        select(RunRecord, IndexRecord.normalized_mse)
        .join(IndexRecord, IndexRecord.run_id == RunRecord.id)
        .where(IndexRecord.normalized_mse > 0)  # not measured for imported features
        .order_by(RunRecord.method, RunRecord.k, RunRecord.name)
    )
    return [
        Indexed(run.name, run.language_model, run.layer, run.method, run.k, run.num_experts, error)
        for run, error in session.execute(query)
    ]
