"""Figures as Plotly JSON."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session
from starlette.responses import Response

from mxd.backend.api.dependencies import ServicesDep
from mxd.backend.database.annotations import labels_stamp
from mxd.backend.database.engine import reading
from mxd.backend.inference.run_loader import IMPORT_LOCK, RunLoader
from mxd.backend.queries.automatic_labels import shown_labels_stamp
from mxd.backend.queries.caches import IndexCache
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.responses import JSON_TYPE, model_response, to_json_bytes
from mxd.backend.schemas.runs import Figure, FigureName
from mxd.trainer.storage.database.tables import RunRecord

router = APIRouter(prefix="/figures", tags=["figures"])

OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run, for figures of a single run.")]
OfExpert = Annotated[
    int | None, Query(ge=0, lt=2**31, description="Id of an expert, for the figure of its activations.")
]


OF_ALL_EXPERTS: tuple[FigureName, ...] = ("density-activation", "density-histogram", "similarity-map")
"""Figures that read every expert of a run: of 86,015, they take a second."""


def figures_of_experts(library: RunLoader) -> dict[str, IndexCache[bytes]]:
    """Return caches of ``OF_ALL_EXPERTS`` as JSON, by name."""

    def stamp(session: Session, run_id: int) -> Hashable:
        name = session.get_one(RunRecord, run_id).name
        return labels_stamp(session, name), shown_labels_stamp(session, run_id), library.fingerprint(name)

    def build(name: FigureName, session: Session, run_id: int) -> bytes:
        return to_json_bytes(_drawn(session, library, name, session.get_one(RunRecord, run_id).name, None))

    return {name: IndexCache(partial(build, name), stamp) for name in OF_ALL_EXPERTS}


def _drawn(session: Session, library: RunLoader, name: FigureName, run: str | None, expert: int | None) -> Figure:
    with IMPORT_LOCK:
        from mxd.backend.plots.registry import draw

    return draw(session, library, name, run, expert)


@router.get("/{name}", response_model=Figure)
def figure(name: FigureName, services: ServicesDep, run: OfRun = None, expert: OfExpert = None) -> Response:
    """One figure; the client chooses the colours."""
    with reading(services.database) as session:
        if name in services.figures and run is not None:
            index = find_index(session, find_run(session, run))
            return Response(services.figures[name].of(session, index), media_type=JSON_TYPE)
        return model_response(_drawn(session, services.library, name, run, expert))
