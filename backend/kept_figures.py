"""Figures that read every expert of a run, made when first asked for and again after a new index or label."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from sqlalchemy.orm import Session

from backend.answers import Kept
from backend.library import Library
from backend.notes import labels_stamp
from backend.queries.held import HeldPerIndex
from backend.schemas import Figure
from trainer.store import RunRecord

Draw = Callable[[Session, RunRecord], Figure]


def kept_figures(library: Library) -> dict[str, HeldPerIndex[Kept]]:
    """Of one application, by name."""

    def nothing_else(_: RunRecord) -> Hashable:
        return None

    def weights(run: RunRecord) -> Hashable:
        return id(library.run(run.name))

    return {
        "usage-strength": _held(_usage_strength, nothing_else),
        "usage-histogram": _held(_usage_histogram, nothing_else),
        "similarity-map": _held(partial(_similarity_map, library), weights),
    }


# Plotly takes a while to import: the first page does not wait for it.


def _usage_strength(session: Session, run: RunRecord) -> Figure:
    from backend.figures import usage_strength

    return usage_strength(session, run)


def _usage_histogram(session: Session, run: RunRecord) -> Figure:
    from backend.figures import usage_histogram

    return usage_histogram(session, run)


def _similarity_map(library: Library, session: Session, run: RunRecord) -> Figure:
    from backend.figures import similarity_map

    return similarity_map(session, run, library.run(run.name))


def _held(draw: Draw, also: Callable[[RunRecord], Hashable]) -> HeldPerIndex[Kept]:
    """``also``: what it depends on besides the index and the labels."""

    def build(session: Session, run_id: int) -> Kept:
        return Kept.of(draw(session, session.get_one(RunRecord, run_id)))

    def stamp(session: Session, run_id: int) -> Hashable:
        run = session.get_one(RunRecord, run_id)
        return labels_stamp(session, run.name), also(run)

    return HeldPerIndex(build, stamp)
