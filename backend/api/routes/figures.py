"""Figures as Plotly JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from mxd.backend.api.dependencies import ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.inference.run_loader import IMPORT_LOCK
from mxd.backend.responses import model_response
from mxd.backend.schemas.runs import (
    Figure,
    FigureName,
)

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run, for figures of a single run.")]
OfExpert = Annotated[
    int | None, Query(ge=0, lt=2**31, description="Id of an expert, for the figure of its activations.")
]


@router.get("/{name}", response_model=Figure)
def figure(name: FigureName, services: ServicesDep, run: OfRun = None, expert: OfExpert = None) -> Response:
    """One figure; the client chooses the colours."""
    with reading(services.database) as session:
        with IMPORT_LOCK:
            from mxd.backend.plots.registry import draw

        return model_response(draw(session, services.library, name, run, expert))
