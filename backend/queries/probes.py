"""Stored probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.schemas import ProbedClass, ProbeList, ProbeScore, ProbeSummary
from mxd.trainer.storage.database.tables import ProbeRecord, RunRecord

Result = Mapping[str, Any]


def probes(session: Session) -> list[tuple[ProbeRecord, RunRecord]]:
    """Return all probes, sorted by label file and method.

    Raises:
        NoEvaluationsError: there are no probes.
    """
    query = select(ProbeRecord, RunRecord).join(RunRecord, RunRecord.id == ProbeRecord.run_id)
    order = (ProbeRecord.labels, ProbeRecord.level, RunRecord.method, RunRecord.k, RunRecord.name)
    score = [(probe, run) for probe, run in session.execute(query.order_by(*order))]
    if not score:
        raise NoEvaluationsError("No run has been probed yet. Run 'mxd probe NAME --labels FILE'.")
    return score


def probes_of(session: Session, run: RunRecord) -> list[ProbeRecord]:
    """Return the probes of a run, sorted by label file."""
    query = select(ProbeRecord).where(ProbeRecord.run_id == run.id)
    return list(session.scalars(query.order_by(ProbeRecord.labels, ProbeRecord.level)))


def described_probes(session: Session, run: RunRecord) -> ProbeList:
    """Return the probes of a run with the scores of each class."""
    return ProbeList(probes=tuple(_summary(probe) for probe in probes_of(session, run)))


def _summary(probe: ProbeRecord) -> ProbeSummary:
    kinds = {kind: score["classes"] for kind, score in probe.result["kinds"].items()}
    return ProbeSummary(
        labels=probe.labels,
        level=probe.result["level"],
        examples=probe.result["examples"],
        classes=tuple(
            ProbedClass(
                name=name,
                examples=score["examples"],
                expert=score["expert"],
                top1=_score(score["top1"]),
                top5=_score(score["top5"]),
                neuron=_score(kinds["neurons"][name]["top1"]),
                random_gate=_score(kinds["random-gate"][name]["top1"]),
            )
            for name, score in kinds["experts"].items()
        ),
    )


def _score(score: Result) -> ProbeScore:
    return ProbeScore(
        f1=score["f1"],
        low=score["f1_low"],
        high=score["f1_high"],
        balanced_accuracy=score["balanced_accuracy"],
        roc_auc=score["roc_auc"],
    )
