"""Strength sweeps: effect of amplifying experts on generated texts, medians over experts, next to baselines."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.plots.runs import as_figure
from mxd.backend.schemas.runs import Figure
from mxd.trainer.evaluation.steering import StrengthResult, median_results
from mxd.trainer.storage.database.tables import RunRecord, SteeringStrengthRecord

PANELS = (
    ("kl", "Change of next token, KL in nats"),
    ("loss", "Loss of the text, nats per token"),
    ("self_similarity", "Similarity of samples, cosine"),
    ("promoted_share", "Tokens it writes for, share"),
)
NAMES = {"expert": "Expert", "random_expert": "Random expert of its density", "random_direction": "Random direction"}
ROLES = {"expert": "this-run", "random_expert": "mark", "random_direction": "reference"}
DASHES = {"expert": "solid", "random_expert": "solid", "random_direction": "dot"}


def steering(session: Session, run: RunRecord) -> Figure:
    """Return four figures of the texts over the strength.

    Raises:
        NoEvaluationsError: steering has not been evaluated.
    """
    records = session.scalars(select(SteeringStrengthRecord).where(SteeringStrengthRecord.run_id == run.id)).all()
    if not records:
        raise NoEvaluationsError(
            f"Steering with {run.name} has not been evaluated. Run 'mxd evaluate-steering {run.name}'."
        )
    results = median_results(
        [
            StrengthResult(**{name: getattr(row, name) for name in StrengthResult.__dataclass_fields__})
            for row in records
        ]
    )
    figure = make_subplots(rows=2, cols=2, subplot_titles=[title for _, title in PANELS])
    start = results["none"][0.0]
    for panel, (field, _) in enumerate(PANELS):
        for kind, name in NAMES.items():
            points = [(0.0, start), *sorted(results.get(kind, {}).items())]  # type: ignore[call-overload]
            trace = go.Scatter(
                x=[strength for strength, _ in points],
                y=[figures[field] for _, figures in points],
                mode="lines+markers",
                name=name,
                legendgroup=kind,
                showlegend=panel == 0,
                line={"dash": DASHES[kind]},
                meta={"role": ROLES[kind]},
            )
            figure.add_trace(trace, row=panel // 2 + 1, col=panel % 2 + 1)
    figure.update_xaxes(title={"text": "Strength, 99th percentiles"}, row=2)
    experts = len({record.expert for record in records})
    return as_figure("steering", f"Amplifying {experts} experts of {run.name}, medians", figure, experts, experts)
