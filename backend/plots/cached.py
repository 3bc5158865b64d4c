"""Figures that read every expert of a run, cached until the index or the labels change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from sqlalchemy.orm import Session

from mxd.backend.database.annotations import labels_stamp
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.caches import IndexCache
from mxd.backend.responses import CachedResponse
from mxd.backend.schemas.runs import Figure
from mxd.trainer.storage.database.tables import RunRecord

Draw = Callable[[Session, RunRecord], Figure]


def cached_figures(library: RunLoader) -> dict[str, IndexCache[CachedResponse]]:
    """Cached figures of one application, by name."""

    def nothing_else(_: RunRecord) -> Hashable:
        return None

    def weights(run: RunRecord) -> Hashable:
        return id(library.run(run.name))

    return {
        "density-activation": _held(_usage_strength, nothing_else),
        "density-histogram": _held(_usage_histogram, nothing_else),
        "similarity-map": _held(partial(_similarity_map, library), weights),
    }


# Plotly takes a while to import: the first page does not wait for it.


def _usage_strength(session: Session, run: RunRecord) -> Figure:
    from mxd.backend.plots.runs import density_activation

    return density_activation(session, run)


def _usage_histogram(session: Session, run: RunRecord) -> Figure:
    from mxd.backend.plots.runs import density_histogram

    return density_histogram(session, run)


def _similarity_map(library: RunLoader, session: Session, run: RunRecord) -> Figure:
    from mxd.backend.plots.runs import similarity_map

    return similarity_map(session, run, library.run(run.name))


def _held(draw: Draw, also: Callable[[RunRecord], Hashable]) -> IndexCache[CachedResponse]:
    """``also`` lists further dependencies besides the index and the labels."""

    def build(session: Session, run_id: int) -> CachedResponse:
        return CachedResponse.from_body(draw(session, session.get_one(RunRecord, run_id)))

    def stamp(session: Session, run_id: int) -> Hashable:
        run = session.get_one(RunRecord, run_id)
        return labels_stamp(session, run.name), also(run)

    return IndexCache(build, stamp)
