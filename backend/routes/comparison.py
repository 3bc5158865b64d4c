"""Two runs beside each other."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from backend.answers import written
from backend.database import reading
from backend.queries.comparison import run_comparison
from backend.queries.runs import find_index, find_run
from backend.schemas import RunComparison
from backend.services import RunName, ServicesDep
from trainer.errors import UserError

router = APIRouter(tags=["runs"])

OtherName = Annotated[str, Path(max_length=200, description="Name of the run to compare with.")]


@router.get("/runs/{run}/comparison/{other}", response_model=RunComparison)
def comparison(run: RunName, other: OtherName, services: ServicesDep) -> Response:
    """The most used experts of a run, each with the most similar expert of another, and what that is by chance."""
    with reading(services.store) as session:
        one, two = find_run(session, run), find_run(session, other)
        if one.id == two.id:
            raise UserError(f"{run} is compared with itself; name another run.")
        found = services.matches.of(session, find_index(session, one), find_index(session, two))
        vocabularies = [services.library.run(name).vocabulary for name in (run, other)]
        return written(run_comparison(session, one, two, found, vocabularies))
