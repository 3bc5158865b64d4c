"""Dose curves: what turning experts up did to texts, medians over experts, beside controls."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.figures import as_figure
from backend.schemas import Figure
from trainer.steering_evaluation.doses import Dose, medians
from trainer.store import RunRecord, SteeringDoseRecord

PANELS = (
    ("kl", "Change of next token, KL in nats"),
    ("loss", "Loss of the text, nats a token"),
    ("self_similarity", "Likeness of samples, cosine"),
    ("promoted_share", "Tokens it writes for, share"),
)
NAMES = {"expert": "Expert", "other": "Random expert of its usage", "direction": "Random direction"}
ROLES = {"expert": "this-run", "other": "mark", "direction": "reference"}
DASHES = {"expert": "solid", "other": "solid", "direction": "dot"}


def steering(session: Session, run: RunRecord) -> Figure:
    """Four figures of the texts over the strength.

    Raises:
        NoEvaluationsError: it has not been measured.
    """
    records = session.scalars(select(SteeringDoseRecord).where(SteeringDoseRecord.run_id == run.id)).all()
    if not records:
        raise NoEvaluationsError(
            f"Steering with {run.name} has not been measured; run mxd evaluate-steering {run.name}."
        )
    found = medians([Dose(**{name: getattr(it, name) for name in Dose.__dataclass_fields__}) for it in records])
    figure = make_subplots(rows=2, cols=2, subplot_titles=[title for _, title in PANELS])
    start = found["none"][0.0]
    for panel, (field, _) in enumerate(PANELS):
        for kind, name in NAMES.items():
            doses = [(0.0, start), *sorted(found.get(kind, {}).items())]  # type: ignore[call-overload]
            trace = go.Scatter(
                x=[strength for strength, _ in doses],
                y=[figures[field] for _, figures in doses],
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
    return as_figure("steering", f"Turning {experts} experts of {run.name} up, medians", figure, experts, experts)
