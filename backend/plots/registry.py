"""Figures by name."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots import evaluations, runs
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.runs import Figure, FigureName
from mxd.trainer.errors import UserError

OF_A_RUN = {
    "training": runs.training,
    "density-activation": runs.density_activation,
    "density-histogram": runs.density_histogram,
    "steering": evaluations.steering,
    "loss-frontier": evaluations.loss_frontier,
    "load": evaluations.load,
    "density-evaluated": evaluations.density_evaluated,
    "probe-activations": evaluations.probe_activations,
}


def draw(session: Session, name: FigureName, run: str | None) -> Figure:
    """Build the figure with this name; an empty one, whose title says what to run, if nothing was measured. Raises
    UserError if a run is missing or unknown, or has no index."""
    if name == "added-layers":
        return evaluations.added_layers(session)
    if run is None:
        raise UserError(f"The figure {name} needs a run. Add ?run=NAME.")
    try:
        return OF_A_RUN[name](session, find_run(session, run))
    except NoEvaluationsError as reason:
        return Figure(name=name, title=str(reason), data=[], layout={}, drawn=0, total=0)
