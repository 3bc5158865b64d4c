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
    wanted = select(ProbeRecord, RunRecord).join(RunRecord, RunRecord.id == ProbeRecord.run_id)
    order = (ProbeRecord.labels, ProbeRecord.level, RunRecord.method, RunRecord.k, RunRecord.name)
    found = [(probe, run) for probe, run in session.execute(wanted.order_by(*order))]
    if not found:
        raise NoEvaluationsError("No run has been probed yet. Run 'mxd probe NAME --labels FILE'.")
    return found


def probes_of(session: Session, run: RunRecord) -> list[ProbeRecord]:
    """Return the probes of a run, sorted by label file."""
    wanted = select(ProbeRecord).where(ProbeRecord.run_id == run.id)
    return list(session.scalars(wanted.order_by(ProbeRecord.labels, ProbeRecord.level)))


def described_probes(session: Session, run: RunRecord) -> ProbeList:
    """Return the probes of a run with the scores of each class."""
    return ProbeList(probes=tuple(_summary(probe) for probe in probes_of(session, run)))


def _summary(probe: ProbeRecord) -> ProbeSummary:
    kinds = {kind: found["classes"] for kind, found in probe.result["kinds"].items()}
    return ProbeSummary(
        labels=probe.labels,
        level=probe.result["level"],
        examples=probe.result["examples"],
        classes=tuple(
            ProbedClass(
                name=name,
                examples=found["examples"],
                expert=found["expert"],
                top1=_score(found["top1"]),
                top5=_score(found["top5"]),
                neuron=_score(kinds["neurons"][name]["top1"]),
                random_gate=_score(kinds["random-gate"][name]["top1"]),
            )
            for name, found in kinds["experts"].items()
        ),
    )


def _score(found: Result) -> ProbeScore:
    return ProbeScore(
        f1=found["f1"],
        low=found["f1_low"],
        high=found["f1_high"],
        balanced_accuracy=found["balanced_accuracy"],
        roc_auc=found["roc_auc"],
    )
