"""Comparison of two runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.queries.comparison import run_comparison
from mxd.backend.queries.evaluations import loss_difference
from mxd.backend.queries.frontier import frontier
from mxd.backend.queries.overview import interpretability
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.queries.verdict import verdict
from mxd.backend.responses import model_response
from mxd.backend.schemas.comparison import (
    FrontierResponse,
    InterpretabilityResponse,
    LossDifferenceResponse,
    RunComparison,
    Verdict,
)
from mxd.trainer.errors import UserError

router = APIRouter(tags=["runs"])

OtherName = Annotated[str, Path(max_length=200, description="Name of the run to compare with.")]


@router.get("/runs/{run}/verdict")
def verdict_of(run: RunName, services: ServicesDep) -> Verdict:
    """All evaluated runs of a run's MLP: their metrics side by side, and the result in one sentence."""
    with reading(services.database) as session:
        return verdict(session, find_run(session, run))


@router.get("/runs/{run}/comparison/{other}", response_model=RunComparison)
def comparison(run: RunName, other: OtherName, services: ServicesDep) -> Response:
    """The densest experts of a run, each with the most similar expert of another run, and the similarity by chance."""
    with reading(services.database) as session:
        one, two = find_run(session, run), find_run(session, other)
        if one.id == two.id:
            raise UserError(f"{run} cannot be compared with itself. Choose another run.")
        matches = services.matches.of(session, find_index(session, one), find_index(session, two))
        vocabularies = [services.library.run(name).vocabulary for name in (run, other)]
        return model_response(run_comparison(session, one, two, matches, vocabularies))


@router.get("/runs/{run}/loss-difference/{other}")
def difference(run: RunName, other: OtherName, services: ServicesDep) -> LossDifferenceResponse:
    """Loss increase of a run minus that of another, paired by sequence; null without a common evaluation."""
    with reading(services.database) as session:
        one, two = find_run(session, run), find_run(session, other)
        return LossDifferenceResponse(difference=loss_difference(session, one, two))


@router.get("/runs/{run}/interpretability")
def measures(run: RunName, services: ServicesDep) -> InterpretabilityResponse:
    """Label scores and token entropies of a run's experts; null if the run is not indexed."""
    with reading(services.database) as session:
        return InterpretabilityResponse(measured=interpretability(session, find_run(session, run)))


@router.get("/runs/{run}/frontier")
def frontier_of(run: RunName, services: ServicesDep) -> FrontierResponse:
    """Loss increase, error and routing shares against K, of all runs of a run's MLP on the same sequences."""
    with reading(services.database) as session:
        return FrontierResponse(frontier=frontier(session, find_run(session, run)))
