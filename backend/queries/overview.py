"""Whole columns of a run's experts, for figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import all_labels, labels_of
from mxd.backend.database.sql import among
from mxd.backend.queries.automatic_labels import clear_labels
from mxd.trainer.storage.database.tables import ExpertRecord, IndexRecord, RunRecord


@dataclass(frozen=True)
class Point:
    """One expert of the scatter."""

    expert: int
    density: float
    mean: float
    label: str | None
    """User label."""
    automatic: str | None
    """Automatic label, if pages show it."""


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
    """Return at most ``count`` active experts and their total number.

    Of a larger run they are the outliers of density and mean activation, the experts with a user label, and a fixed
    random sample of the others.
    """
    active = (ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    experts = np.array(session.scalars(select(ExpertRecord.expert).where(*active)).all(), dtype=np.int64)
    chosen = experts
    if len(experts) > count:
        first = np.intersect1d([*_outliers(session, active, count // 10), *all_labels(session, run.name)], experts)[
            :count
        ]
        others = np.setdiff1d(experts, first)
        chosen = np.r_[first, np.random.default_rng(0).choice(others, size=count - len(first), replace=False)]
    ids = chosen.tolist()
    rows = session.execute(
        select(ExpertRecord.expert, ExpertRecord.density, ExpertRecord.mean_activation)
        .where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, ids))
        .order_by(ExpertRecord.expert)
    ).all()
    labels, named = labels_of(session, run.name, ids), clear_labels(session, run, ids)
    points = [Point(expert, density, mean, labels.get(expert), named.get(expert)) for expert, density, mean in rows]
    return points, len(experts)


def _outliers(session: Session, active: Sequence[ColumnElement[bool]], count: int) -> list[int]:
    """Return the experts with the lowest and highest density and mean activation."""
    columns = (ExpertRecord.density, ExpertRecord.mean_activation)
    orders = [order for column in columns for order in (column.asc(), column.desc())]
    each = count // len(orders)
    return [
        expert
        for order in orders
        for expert in session.scalars(select(ExpertRecord.expert).where(*active).order_by(order).limit(each))
    ]


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
