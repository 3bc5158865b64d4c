"""Figures as Plotly JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backend.answers import Kept, written
from backend.database import reading
from backend.queries.runs import find_index, find_run
from backend.schemas import Figure, FigureName
from backend.services import Services, ServicesDep

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run; figures of single runs need it.")]
OfExpert = Annotated[int | None, Query(ge=0, lt=2**31, description="Id of an expert; needed for its coefficients.")]

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
        if name in services.figures and run is not None:
            record = find_run(session, run)
            return services.figures[name].of(session, find_index(session, record)).answer(request.headers)
        from backend.drawing import draw  # brings Plotly, which the first page does not wait for

        return written(draw(session, name, run, expert))
