"""Figures by name."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.plots import evaluations as figures_of_evaluations
from mxd.backend.plots import frontiers as figures_of_frontiers
from mxd.backend.plots import probes as figures_of_probes
from mxd.backend.plots import runs as figures
from mxd.backend.plots.evaluations import figure_or_hint
from mxd.backend.plots.steering import steering
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.schemas.runs import (
    Figure,
    FigureName,
)
from mxd.trainer.errors import UserError

MEASURED_OF_A_RUN = {
    "steering": steering,
    "load": figures_of_evaluations.load,
    "density-evaluated": figures_of_evaluations.density_evaluated,
    "probe-coefficients": figures_of_probes.probe_coefficients,
}
OF_A_RUN = {
    "training": figures.training,
    "density-activation": figures.density_activation,
    "density-histogram": figures.density_histogram,
}
MEASURED_OF_ALL = {
    "loss-frontier": figures_of_frontiers.loss_frontier,
    "error-frontier": figures_of_frontiers.error_frontier,
    "faithfulness": figures_of_evaluations.faithfulness,
    "routing-frontier": figures_of_frontiers.routing_frontier,
    "added-layers": figures_of_evaluations.added_layers,
}


def draw(session: Session, library: RunLoader, name: FigureName, run: str | None, expert: int | None) -> Figure:
    """Build the figure with this name. ``library`` loads a run's weights.

    Raises:
        UserError: a run or an expert is missing or unknown, or nothing was measured.
    """
    if name == "frontier":
        return figure_or_hint(name, partial(figures.frontier, session))
    if name == "probing":
        chosen = None if run is None else find_run(session, run)
        return figure_or_hint(name, partial(figures_of_probes.probing, session, chosen))
    if name in MEASURED_OF_ALL:
        return figure_or_hint(name, partial(MEASURED_OF_ALL[name], session))
    if run is None:
        raise UserError(f"The figure {name} needs a run. Add ?run=NAME.")
    record = find_run(session, run)
    if name in MEASURED_OF_A_RUN:
        return figure_or_hint(name, partial(MEASURED_OF_A_RUN[name], session, record))
    if name in OF_A_RUN:
        return OF_A_RUN[name](session, record)
    if name == "similarity-map":
        find_index(session, record)
        return figures.similarity_map(session, record, library.run(record.name))
    if expert is None:
        raise UserError(f"The figure {name} needs an expert. Add ?expert=ID.")
    return figures.coefficients(session, record, expert)
