"""What a run adds to the loss, and how its experts are."""

from __future__ import annotations

from fastapi import APIRouter

from backend.database import reading
from backend.queries.evaluations import evaluations_of
from backend.queries.probes import described_probes
from backend.queries.runs import find_run
from backend.schemas import EvaluationList, ProbeList
from backend.services import RunName, ServicesDep

router = APIRouter(tags=["evaluations"])


@router.get("/runs/{run}/evaluations")
def evaluations(run: RunName, services: ServicesDep) -> EvaluationList:
    """Evaluations of a run, the newest first; none before ``mxd evaluate``."""
    with reading(services.store) as session:
        return evaluations_of(session, find_run(session, run))


@router.get("/runs/{run}/probes")
def probes(run: RunName, services: ServicesDep) -> ProbeList:
    """How well single experts of a run tell labelled texts apart; none before ``mxd probe``."""
    with reading(services.store) as session:
        return described_probes(session, find_run(session, run))
