"""Figures by name."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots import evaluations, frontiers, probes, runs
from mxd.backend.plots.steering import steering
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.runs import Figure, FigureName
from mxd.trainer.errors import UserError

OF_ALL_RUNS = {
    "loss-frontier": frontiers.loss_frontier,
    "error-frontier": frontiers.error_frontier,
    "faithfulness": evaluations.faithfulness,
    "routing-frontier": frontiers.routing_frontier,
    "added-layers": evaluations.added_layers,
}
OF_A_RUN = {
    "training": runs.training,
    "density-activation": runs.density_activation,
    "density-histogram": runs.density_histogram,
    "steering": steering,
    "load": evaluations.load,
    "density-evaluated": evaluations.density_evaluated,
    "probe-coefficients": probes.probe_coefficients,
}


def draw(session: Session, name: FigureName, run: str | None) -> Figure:
    """Build the figure with this name; an empty one, whose title says what to run, if nothing was measured.

    Raises:
        UserError: a run is missing or unknown, or has no index.
    """
    record = None if run is None else find_run(session, run)
    if name in OF_ALL_RUNS:
        make = partial(OF_ALL_RUNS[name], session)
    elif name == "probing":
        make = partial(probes.probing, session, record)
    elif record is None:
        raise UserError(f"The figure {name} needs a run. Add ?run=NAME.")
    else:
        make = partial(OF_A_RUN[name], session, record)
    try:
        return make()
    except NoEvaluationsError as reason:
        return Figure(name=name, title=str(reason), data=[], layout={}, drawn=0, total=0)
