"""Evaluations and probes of runs, and the benchmark."""

from __future__ import annotations

from fastapi import APIRouter

from mxd.backend.api.dependencies import RunName, ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.queries.evaluations import evaluations_of
from mxd.backend.queries.probes import described_probes, stored_benchmark
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.evaluations import BenchmarkResponse, EvaluationList, ProbeList
from mxd.trainer.config.layer import WEIGHTS_FILE, stored_bits
from mxd.trainer.storage.run import runs_folder

router = APIRouter(tags=["evaluations"])


@router.get("/runs/{run}/evaluations")
def evaluations(run: RunName, services: ServicesDep) -> EvaluationList:
    """Evaluations of a run, newest first; none before ``mxd evaluate``."""
    with reading(services.database) as session:
        record = find_run(session, run)
        weights = runs_folder(services.settings.data) / record.name / WEIGHTS_FILE
        return evaluations_of(session, record, stored_bits(weights))


@router.get("/runs/{run}/probes")
def probes(run: RunName, services: ServicesDep) -> ProbeList:
    """Single-expert probes of a run on labelled texts; none before ``mxd probe``."""
    with reading(services.database) as session:
        return described_probes(session, find_run(session, run))


@router.get("/benchmark")
def benchmark(services: ServicesDep) -> BenchmarkResponse:
    """Results of ``mxd benchmark`` in the data folder; null before it."""
    return BenchmarkResponse(benchmark=stored_benchmark(services.settings.data))
