"""What ``mxd probe`` has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.schemas import ProbedClass, ProbeList, ProbeScore, ProbeSummary
from trainer.store import ProbeRecord, RunRecord

Result = Mapping[str, Any]


def probes(session: Session) -> list[tuple[ProbeRecord, RunRecord]]:
    """All probes, by labels and method.

    Raises:
        NoEvaluationsError: there are none.
    """
    wanted = select(ProbeRecord, RunRecord).join(RunRecord, RunRecord.id == ProbeRecord.run_id)
    order = (ProbeRecord.labels, ProbeRecord.level, RunRecord.method, RunRecord.k, RunRecord.name)
    found = [(probe, run) for probe, run in session.execute(wanted.order_by(*order))]
    if not found:
        raise NoEvaluationsError("No run has been probed yet; do it with mxd probe NAME --labels FILE.")
    return found


def probes_of(session: Session, run: RunRecord) -> list[ProbeRecord]:
    """Those of one run, by labels."""
    wanted = select(ProbeRecord).where(ProbeRecord.run_id == run.id)
    return list(session.scalars(wanted.order_by(ProbeRecord.labels, ProbeRecord.level)))


def described_probes(session: Session, run: RunRecord) -> ProbeList:
    """Those of one run, class by class."""
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
                one=_score(found["one"]),
                five=_score(found["five"]),
                neuron=_score(kinds["neurons"][name]["one"]),
                random_gate=_score(kinds["random-gate"][name]["one"]),
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
