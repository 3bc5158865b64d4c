"""Measured values for a run's model card."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.queries.runs import last_step, metrics_after
from mxd.trainer.storage.database.tables import EvaluationRecord, IndexRecord, RunRecord
from mxd.trainer.training.layer_trainer import DEAD_AFTER_TOKENS


def card_figures(session: Session, name: str) -> dict[str, str]:
    """Return measured values with units. Empty if the database does not have the run."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None:
        return {}
    return _training(session, run) | _index(session, run) | _evaluation(session, run)


def _training(session: Session, run: RunRecord) -> dict[str, str]:
    metrics = metrics_after(session, run, last_step(session, run) - 1)
    if not metrics:
        return {}
    last = metrics[-1]
    return {
        "normalised MSE after training (1: predicting zero)": f"{last.normalized_mse:.4f}",
        f"experts active on none of the last {min(DEAD_AFTER_TOKENS, last.tokens):,} training tokens": (
            f"{last.dead_share:.1%}"
        ),
    }


def _index(session: Session, run: RunRecord) -> dict[str, str]:
    index = session.get(IndexRecord, run.id)
    if index is None:
        return {}
    return {f"experts active in {index.tokens:,} indexed tokens": f"{index.active_experts:,} of {run.num_experts:,}"}


def _evaluation(session: Session, run: RunRecord) -> dict[str, str]:
    query = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    record = session.scalar(query.order_by(EvaluationRecord.created_at.desc()).limit(1))
    if record is None or "routing_share" not in record.result:
        return {}
    result = record.result
    where = f"on {result['tokens']:,} tokens" + (" of the training data" if result["seen_text"] else "")
    delta, explained = result["loss_increase"], result["variance_explained"]
    strict = result.get("strict_routing_share")
    return {
        f"loss increase {where}": f"{delta['value']:.4f} nats (95%: {delta['low']:.4f} to {delta['high']:.4f})",
        f"routing share {where}": f"{result['routing_share']:.3f}",
        **({} if strict is None else {f"strict routing share {where}": f"{strict:.3f}"}),
        **({} if explained is None else {f"variance explained {where}": f"{explained:.1%}"}),
        f"normalised MSE {where} (1: predicting zero)": f"{result['normalized_mse']:.4f}",
        f"mean active experts {where}": f"{result['l0']:.1f}",
    }
