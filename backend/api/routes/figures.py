"""Figures as Plotly JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.inference.run_loader import IMPORT_LOCK
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.responses import CachedResponse, model_response
from mxd.backend.schemas.runs import Figure, FigureName

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run, for figures of a single run.")]
OfExpert = Annotated[
    int | None, Query(ge=0, lt=2**31, description="Id of an expert, for the figure of its activations.")
]

KEPT = ("density-activation", "density-histogram")
"""Names of the figures that depend only on the database."""


@router.get("/{name}", response_model=Figure)
async def figure(
    name: FigureName, request: Request, services: ServicesDep, run: OfRun = None, expert: OfExpert = None
) -> Response:
    """One figure; the client chooses the colours."""
    browsed = services.run_cache.get_cached(run) if run is not None and name in KEPT else None
    if browsed is None:
        return await run_in_threadpool(_draw, name, request, services, run, expert)
    if name not in browsed.figures:
        browsed.figures[name] = await run_in_threadpool(_kept, name, services, browsed.record.name)
    return browsed.figures[name].response(request.headers)


def _kept(name: FigureName, services: Services, run: str) -> CachedResponse:
    with reading(services.database) as session:
        return services.figures[name].of(session, find_index(session, find_run(session, run)))


def _draw(name: FigureName, request: Request, services: Services, run: str | None, expert: int | None) -> Response:
    with reading(services.database) as session:
        if name in services.figures and run is not None:
            record = find_run(session, run)
            return services.figures[name].of(session, find_index(session, record)).response(request.headers)
        with IMPORT_LOCK:
            from mxd.backend.plots.registry import draw

        return model_response(draw(session, name, run, expert))
