"""Figures of a run for the card that goes with it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.queries.runs import last_step, metrics_after
from trainer.store import EvaluationRecord, IndexRecord, RunRecord


def card_figures(session: Session, name: str) -> dict[str, str]:
    """What was measured of a run, with units; empty where the store does not know it."""
    run = session.scalar(select(RunRecord).where(RunRecord.name == name))
    if run is None:
        return {}
    return _fitting(session, run) | _index(session, run) | _evaluation(session, run)


def _fitting(session: Session, run: RunRecord) -> dict[str, str]:
    metrics = metrics_after(session, run, last_step(session, run) - 1)
    if not metrics:
        return {}
    last = metrics[-1]
    return {
        "normalised MSE at the end of fitting": f"{last.normalised_mse:.4f}",
        "dead experts at the end of fitting": f"{last.dead_share:.1%}",
    }


def _index(session: Session, run: RunRecord) -> dict[str, str]:
    index = session.get(IndexRecord, run.id)
    if index is None:
        return {}
    return {f"experts active in {index.tokens:,} indexed tokens": f"{index.experts_active:,} of {run.num_experts:,}"}


def _evaluation(session: Session, run: RunRecord) -> dict[str, str]:
    wanted = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    record = session.scalar(wanted.order_by(EvaluationRecord.created_at.desc()).limit(1))
    if record is None or "routing_share" not in record.result:
        return {}
    result = record.result
    where = f"on {result['tokens']:,} tokens" + (" that it was fitted on" if result["seen_text"] else "")
    delta = result["delta_ce"]
    return {
        f"loss added {where}": f"{delta['value']:.4f} nats (95%: {delta['low']:.4f} to {delta['high']:.4f})",
        f"routing share {where}": f"{result['routing_share']:.3f}",
        f"normalised MSE {where}": f"{result['normalised_mse']:.4f}",
        f"mean active experts {where}": f"{result['l0']:.1f}",
    }
