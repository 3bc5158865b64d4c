"""Figures by name, but for those that are kept."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from backend import figures, figures_of_evaluations, figures_of_frontiers, figures_of_probes
from backend.figures_of_evaluations import or_nothing
from backend.figures_of_steering import steering
from backend.queries.runs import find_run
from backend.schemas import Figure, FigureName
from trainer.errors import UserError

MEASURED_OF_A_RUN = {
    "steering": steering,
    "layer-errors": figures_of_evaluations.layer_errors,
    "load": figures_of_evaluations.load,
    "usage-evaluated": figures_of_evaluations.usage_evaluated,
    "probe-coefficients": figures_of_probes.probe_coefficients,
}
MEASURED_OF_ALL = {
    "loss-frontier": figures_of_frontiers.loss_frontier,
    "error-frontier": figures_of_frontiers.error_frontier,
    "faithfulness": figures_of_evaluations.faithfulness,
    "routing-frontier": figures_of_frontiers.routing_frontier,
    "added-layers": figures_of_evaluations.added_layers,
}


def draw(session: Session, name: FigureName, run: str | None, expert: int | None) -> Figure:
    """The figure of this name.

    Raises:
        UserError: it needs a run or an expert and none is named, there is no such one, or nothing was measured.
    """
    if name == "frontier":
        return or_nothing(name, partial(figures.frontier, session))
    if name == "probing":
        chosen = None if run is None else find_run(session, run)
        return or_nothing(name, partial(figures_of_probes.probing, session, chosen))
    if name in MEASURED_OF_ALL:
        return or_nothing(name, partial(MEASURED_OF_ALL[name], session))
    if run is None:
        raise UserError(f"The figure {name} is of a run; name it with ?run=.")
    record = find_run(session, run)
    if name in MEASURED_OF_A_RUN:
        return or_nothing(name, partial(MEASURED_OF_A_RUN[name], session, record))
    if name == "training":
        return figures.training(session, record)
    if expert is None:
        raise UserError(f"The figure {name} is of an expert; name it with ?expert=.")
    return figures.coefficients(session, record, expert)
