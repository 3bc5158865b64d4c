"""Figures as Plotly JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from backend import figures
from backend.database import reading
from backend.figures_of_steering import steering
from backend.queries.runs import find_run
from backend.schemas import Figure, FigureName
from backend.services import ServicesDep
from trainer.errors import UserError

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run; all figures but the frontier need it.")]
OfExpert = Annotated[int | None, Query(ge=0, lt=2**31, description="Id of an expert; needed for its coefficients.")]

OF_A_RUN = {
    "training": figures.training,
    "usage-strength": figures.usage_strength,
    "usage-histogram": figures.usage_histogram,
    "steering": steering,
}


@router.get("/{name}")
def figure(name: FigureName, services: ServicesDep, run: OfRun = None, expert: OfExpert = None) -> Figure:
    """One figure; colours are left to whoever draws it."""
    with reading(services.store) as session:
        if name == "frontier":
            return figures.frontier(session)
        if run is None:
            raise UserError(f"The figure {name} is of a run; name it with ?run=.")
        record = find_run(session, run)
        if name == "coefficients":
            if expert is None:
                raise UserError("The figure coefficients is of an expert; name it with ?expert=.")
            return figures.coefficients(session, record, expert)
        return OF_A_RUN[name](session, record)
