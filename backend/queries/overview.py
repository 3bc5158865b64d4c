"""Summaries of a run: densities and samples of its experts, means of their label scores, and figures of its card."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import all_labels, labels_of
from mxd.backend.database.sql import among
from mxd.backend.queries.automatic_labels import FEATURES, clear_labels
from mxd.backend.queries.runs import last_step, metrics_after
from mxd.trainer.config.training import DEAD_AFTER_TOKENS
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, EvaluationRecord, IndexRecord, RunRecord


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


def densities(session: Session, run: RunRecord) -> NDArray[np.float64]:
    """Return the density of every active expert, ascending."""
    query = select(ExpertRecord.density).where(ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    return np.array(session.scalars(query.order_by(ExpertRecord.density)).all(), dtype=np.float64)


def sample(session: Session, run: RunRecord, count: int) -> tuple[list[Point], int]:
    """Return at most ``count`` active experts and their total number. Of a larger run they are the outliers of density
    and mean activation, the experts with a user label, and a fixed random sample of the others."""
    active = (ExpertRecord.run_id == run.id, ExpertRecord.density > 0)
    experts = np.array(session.scalars(select(ExpertRecord.expert).where(*active)).all(), dtype=np.int64)
    chosen = experts
    if len(experts) > count:
        columns = (ExpertRecord.density, ExpertRecord.mean_activation)
        orders = [order for column in columns for order in (column.asc(), column.desc())]
        extremes = select(ExpertRecord.expert).where(*active).limit(count // 10 // len(orders))
        outliers = [expert for order in orders for expert in session.scalars(extremes.order_by(order))]
        first = np.intersect1d([*outliers, *all_labels(session, run.name)], experts)[:count]
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


MIN_EXPERTS = 2
"""Number of experts that a standard error needs."""


class MeanOverExperts(NamedTuple):
    """Mean over experts, with its standard error."""

    value: float
    standard_error: float


def means_over_experts(session: Session, run: RunRecord) -> dict[str, MeanOverExperts]:
    """Return the token entropy, in bits, and the label score of a run's experts; empty without an index. They say how
    easily experts are described, and depend on the indexed text and its length."""
    if session.get(IndexRecord, run.id) is None:
        return {}
    expert, label = ExpertRecord, AutomaticLabelRecord
    active = (expert.run_id == run.id, expert.active_tokens > 0)
    # Only one labeller, so that runs are comparable. Imported labels have no test examples and no score.
    scored = (label.run_id == run.id, label.labeller == FEATURES, label.test_examples > 0)
    columns = {"token_entropy": (expert.entropy, active), "label_score": (label.balanced_accuracy, scored)}
    means = {}
    for key, (column, conditions) in columns.items():
        query = select(func.count(column), func.avg(column), func.avg(column * column)).where(*conditions)
        count, mean, mean_square = session.execute(query).one()
        if count >= MIN_EXPERTS:
            variance = max(0.0, mean_square - mean**2) * count / (count - 1)
            means[key] = MeanOverExperts(mean, math.sqrt(variance / count))
    return means


def card_figures(session: Session, name: str) -> dict[str, str]:
    """Return measured values with units. Empty if the database does not have the run."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None:
        return {}
    figures = {}
    for last in metrics_after(session, run, last_step(session, run) - 1)[-1:]:
        tokens = min(DEAD_AFTER_TOKENS, last.tokens)
        figures["normalised MSE after training (1: predicting zero)"] = f"{last.normalized_mse:.4f}"
        figures[f"experts active on none of the last {tokens:,} training tokens"] = f"{last.dead_share:.1%}"
    if (index := session.get(IndexRecord, run.id)) is not None:
        active = f"{index.active_experts:,} of {run.num_experts:,}"
        figures[f"experts active in {index.tokens:,} indexed tokens"] = active
    query = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    record = session.scalar(query.order_by(EvaluationRecord.created_at.desc()).limit(1))
    if record is None or "routing_share" not in record.result:
        return figures
    result = record.result
    where = f"on {result['tokens']:,} tokens" + (" of the training data" if result["seen_text"] else "")
    delta, explained = result["loss_increase"], result["variance_explained"]
    strict = result.get("strict_routing_share")
    return figures | {
        f"loss increase {where}": f"{delta['value']:.4f} nats (95%: {delta['low']:.4f} to {delta['high']:.4f})",
        f"routing share {where}": f"{result['routing_share']:.3f}",
        **({} if strict is None else {f"strict routing share {where}": f"{strict:.3f}"}),
        **({} if explained is None else {f"variance explained {where}": f"{explained:.1%}"}),
        f"normalised MSE {where} (1: predicting zero)": f"{result['normalized_mse']:.4f}",
        f"mean active experts {where}": f"{result['l0']:.1f}",
    }
