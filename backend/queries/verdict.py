"""The runs that replace one MLP side by side: which one predicts best, and where it does not lead.

All thresholds and sentences of the verdict are here; pages and reports show them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.evaluations import evaluations_of_run, is_at_its_own_k, loss_difference
from mxd.backend.queries.overview import interpretability
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.comparison import (
    Verdict,
    VerdictCell,
    VerdictMetric,
    VerdictRun,
)
from mxd.trainer.evaluation.evaluation_metrics import METRICS, Metric
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.utils.bootstrap import Interval

EQUAL_WITHIN = 0.01
"""Parameters and tokens within this ratio count as equal conditions."""
NORMAL_95 = 1.96


MEANS_OVER_EXPERTS = (
    Metric(
        "label_score",
        "Label score",
        "plain",
        "balanced accuracy of automatic labels on held-out examples, mean over experts; 0.5 is chance",
        better="higher",
        form=".3f",
    ),
    Metric(
        "token_entropy",
        "Token entropy",
        "plain",
        "bits of the tokens on which an expert is active",
        better="lower",
        form=".3f",
    ),
)
"""Metrics of the index and of labels."""
DEAD_IN_INDEX = Metric(
    "dead_share", "Dead experts", "share", "share of experts that are active on no indexed token", better="lower"
)
EVALUATED = tuple(metric for metric in METRICS if metric.compares_runs)


def verdict(session: Session, run: RunRecord) -> Verdict:
    """Compare all evaluated runs of a run's MLP, the given one first."""
    same_mlp = RunRecord.language_model == run.language_model, RunRecord.layer == run.layer
    records = session.scalars(select(RunRecord).where(*same_mlp).order_by(RunRecord.method, RunRecord.name)).all()
    records = [run, *(record for record in records if record.id != run.id)]
    results = {record.name: _result(session, record) for record in records}
    compared = [record for record in records if results[record.name] is not None]
    rows = tuple(_row(session, record, results[record.name] or {}) for record in compared)
    metrics = tuple(
        VerdictMetric(
            key=metric.key,
            title=metric.title,
            unit=metric.unit,
            better=metric.better,
            description=str(metric.description),
            best=_best(rows, metric),
        )
        for metric in (*EVALUATED, *MEANS_OVER_EXPERTS, DEAD_IN_INDEX)
        if any(cell.key == metric.key for row in rows for cell in row.cells)
    )
    return Verdict(run=run.name, runs=rows, metrics=metrics, sentence=_sentence(session, rows), notes=_notes(rows))


def _result(session: Session, run: RunRecord) -> Mapping[str, Any] | None:
    """The newest evaluation of a single run at its own K, on text that it was not trained on if there is one."""
    results = [e.result for e in evaluations_of_run(session, run) if "intervals" in e.result]
    own = [result for result in results if is_at_its_own_k(result)]
    return next((result for result in own if not result["seen_text"]), own[0] if own else None)


def _row(session: Session, run: RunRecord, result: Mapping[str, Any]) -> VerdictRun:
    found = ((metric.key, metric.measured(result)) for metric in EVALUATED)
    cells = [VerdictCell(key=key, **measured) for key, measured in found if measured is not None]
    if (means := interpretability(session, run)) is not None:
        for metric in MEANS_OVER_EXPERTS:
            if (mean := getattr(means, metric.key)) is not None:
                margin = NORMAL_95 * mean.standard_error
                ends = {"low": mean.value - margin, "high": mean.value + margin}
                cells.append(VerdictCell(key=metric.key, value=mean.value, **ends))
    if session.get(IndexRecord, run.id) is not None:
        active = select(func.count()).where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
        share = 1 - (session.scalar(active) or 0) / run.num_experts
        cells.append(VerdictCell(key=DEAD_IN_INDEX.key, value=share, low=None, high=None))
    return VerdictRun(
        name=run.name,
        method=run.method,
        method_title=run.method.replace("-", " ").replace("mxd", "MxD"),
        parameters=run.parameters,
        k=run.k,
        trained_tokens=run.trained_tokens,
        evaluated_tokens=result["tokens"],
        seen_text=result["seen_text"],
        cells=tuple(cells),
    )


def _best(rows: Sequence[VerdictRun], metric: Metric) -> str | None:
    """The run that leads in a metric with an interval apart from all others; None if none does."""
    if metric.better is None:
        return None
    sign = -1 if metric.better == "lower" else 1
    cells = {row.name: cell for row in rows for cell in row.cells if cell.key == metric.key}
    if len(cells) < 2:
        return None
    leader = max(cells, key=lambda name: sign * cells[name].value)
    low, high = _ends(cells[leader])
    others = [_ends(cell) for name, cell in cells.items() if name != leader]
    apart = all(high < other_low if sign < 0 else low > other_high for other_low, other_high in others)
    return leader if apart else None


def _ends(cell: VerdictCell) -> tuple[float, float]:
    return (cell.value if cell.low is None else cell.low, cell.value if cell.high is None else cell.high)


def _sentence(session: Session, rows: Sequence[VerdictRun]) -> str:
    """One sentence on the loss, paired by sequence, from the point of view of the first run."""
    if not rows:
        return "No run of this layer has been evaluated yet."
    if len(rows) == 1:
        return f"{rows[0].name} is the only evaluated run of this layer."
    own, *others = rows
    record = find_run(session, own.name)
    paired = [(row, loss_difference(session, record, find_run(session, row.name))) for row in others]
    known = [(row, difference) for row, difference in paired if difference is not None]
    if not known:
        return "The runs of this layer have no evaluation on the same sequences, so their losses are not comparable."
    parts = [_difference(own, row, difference) for row, (difference, _) in known]
    return f"On {known[0][1][1]:,} held-out tokens, {own.name} ({own.method_title}) {' and '.join(parts)}."


def _difference(own: VerdictRun, other: VerdictRun, difference: Interval) -> str:
    size = f"{abs(difference.value):.4f} nats"
    interval = f"{difference.low:+.4f} to {difference.high:+.4f}"
    name = f"{other.name} ({other.method_title})" if other.method != own.method else other.name
    if difference.low > 0:
        return f"predicts worse than {name} by {size} ({interval})"
    if difference.high < 0:
        return f"predicts better than {name} by {size} ({interval})"
    return f"is level with {name} ({difference.value:+.4f} nats, {interval})"


def _notes(rows: Sequence[VerdictRun]) -> tuple[str, ...]:
    """Conditions that differ from the first run's, and evaluations on training text."""
    notes = []
    for row in rows[1:]:
        differences = [
            f"{other:,} {what} against {value:,}"
            for what, value, other in (
                ("parameters", rows[0].parameters, row.parameters),
                ("training tokens", rows[0].trained_tokens, row.trained_tokens),
            )
            if abs(value - other) > EQUAL_WITHIN * max(value, other)
        ]
        if row.k != rows[0].k:
            differences.append(f"K = {row.k} against {rows[0].k}")
        if differences:
            notes.append(f"Not equal conditions: {row.name} has {', '.join(differences)}.")
    seen = [row.name for row in rows if row.seen_text]
    if seen:
        notes.append(f"Evaluated on training text, so the numbers are too good: {', '.join(seen)}.")
    return tuple(notes)
