"""Figures as Plotly JSON."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backend import figures, figures_of_evaluations
from backend.answers import Kept, written
from backend.database import reading
from backend.figures_of_evaluations import or_nothing
from backend.figures_of_steering import steering
from backend.queries.runs import find_index, find_run
from backend.schemas import Figure, FigureName
from backend.services import Services, ServicesDep
from trainer.errors import UserError

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run; figures of single runs need it.")]
OfExpert = Annotated[int | None, Query(ge=0, lt=2**31, description="Id of an expert; needed for its coefficients.")]

OF_A_RUN = {
    "training": figures.training,
}
MEASURED_OF_A_RUN = {
    "steering": steering,
    "load": figures_of_evaluations.load,
    "usage-evaluated": figures_of_evaluations.usage_evaluated,
    "probe-coefficients": figures_of_evaluations.probe_coefficients,
}
MEASURED_OF_ALL = {
    "loss-frontier": figures_of_evaluations.loss_frontier,
    "error-frontier": figures_of_evaluations.error_frontier,
    "faithfulness": figures_of_evaluations.faithfulness,
    "routing-frontier": figures_of_evaluations.routing_frontier,
    "probing": figures_of_evaluations.probing,
}


KEPT = ("usage-strength", "usage-histogram")
"""Figures that depend on nothing but the store."""


@router.get("/{name}", response_model=Figure)
async def figure(
    name: FigureName, request: Request, services: ServicesDep, run: OfRun = None, expert: OfExpert = None
) -> Response:
    """One figure; colours are left to whoever draws it."""
    browsed = services.browsing.at_once(run) if run is not None and name in KEPT else None
    if browsed is None:
        return await run_in_threadpool(_draw, name, request, services, run, expert)
    if name not in browsed.figures:
        browsed.figures[name] = await run_in_threadpool(_kept, name, services, browsed.record.name)
    return browsed.figures[name].answer(request.headers)


def _kept(name: FigureName, services: Services, run: str) -> Kept:
    with reading(services.store) as session:
        return services.figures[name].of(session, find_index(session, find_run(session, run)))


def _draw(name: FigureName, request: Request, services: Services, run: str | None, expert: int | None) -> Response:
    with reading(services.store) as session:
        if name == "frontier":
            return written(figures.frontier(session))
        if name in MEASURED_OF_ALL:
            return written(or_nothing(name, partial(MEASURED_OF_ALL[name], session)))
        if run is None:
            raise UserError(f"The figure {name} is of a run; name it with ?run=.")
        record = find_run(session, run)
        if name in MEASURED_OF_A_RUN:
            return written(or_nothing(name, partial(MEASURED_OF_A_RUN[name], session, record)))
        if name in OF_A_RUN:
            return written(OF_A_RUN[name](session, record))
        if name == "coefficients":
            if expert is None:
                raise UserError("The figure coefficients is of an expert; name it with ?expert=.")
            return written(figures.coefficients(session, record, expert))
        return services.figures[name].of(session, find_index(session, record)).answer(request.headers)
