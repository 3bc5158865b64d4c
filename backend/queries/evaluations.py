"""Stored evaluations."""

from __future__ import annotations

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.runs import aware
from mxd.backend.schemas.evaluations import EvaluationMetric, EvaluationSummary, EvaluationWarning
from mxd.trainer.evaluation.evaluation_metrics import Result, measured_in
from mxd.trainer.evaluation.seeds import SeedGroup, group_by_seeds
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap, Interval


def evaluated(session: Session) -> list[EvaluationRecord]:
    """Return the evaluations of single runs, sorted by dataset, method and K.

    Raises:
        NoEvaluationsError: there are no evaluations.
    """
    query = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    order = (EvaluationRecord.text, RunRecord.method, RunRecord.k, RunRecord.seed, RunRecord.name)
    records = [record for record in session.scalars(query.order_by(*order)) if "warnings" in record.result]
    if not records:
        raise NoEvaluationsError("No run has been evaluated yet. Run 'mxd evaluate NAME --dataset DATASET'.")
    return records


def seeds(session: Session) -> list[SeedGroup]:
    """Return the same, grouped by everything but the seed.

    Raises:
        NoEvaluationsError: there are no evaluations.
    """
    return group_by_seeds((record, session.get_one(RunRecord, record.run_id).config) for record in evaluated(session))


def added(session: Session) -> list[EvaluationRecord]:
    """Return layer-by-layer evaluations, those of separately trained runs first.

    Raises:
        NoEvaluationsError: there are no evaluations.
    """
    query = select(EvaluationRecord).order_by(EvaluationRecord.text, EvaluationRecord.created_at)
    # Results of privacy fine-tuning have steps too.
    records = [record for record in session.scalars(query) if "fine_tuned" in record.result]
    if not records:
        raise NoEvaluationsError(
            "No layer-by-layer evaluation yet. Run 'mxd evaluate RUN RUN … --layer-by-layer --dataset DATASET'."
        )
    return sorted(records, key=lambda record: bool(record.result["fine_tuned"]))


def newest(session: Session, run: RunRecord) -> EvaluationRecord:
    """Return the newest evaluation of a run.

    Raises:
        NoEvaluationsError: the run has none.
    """
    records = evaluations_of_run(session, run)
    if not records:
        raise NoEvaluationsError(
            f"Run '{run.name}' has not been evaluated yet. Run 'mxd evaluate {run.name} --dataset DATASET'."
        )
    return records[0]


def evaluations_of(session: Session, run: RunRecord, bits: int | None = None) -> tuple[EvaluationSummary, ...]:
    """Return all evaluations of a run, newest first. ``bits``: those per weight if the weights are stored rounded."""
    return tuple(_summary(record, bits) for record in evaluations_of_run(session, run))


def loss_difference(session: Session, one: RunRecord, other: RunRecord) -> tuple[Interval, int] | None:
    """Return the paired difference of two runs' loss increases and its number of tokens.

    None without evaluations on the same sequences.
    """
    others = {sample_of(record): record for record in evaluations_of_run(session, other)}
    for record in evaluations_of_run(session, one):
        if twin := others.get(sample_of(record)):
            one_S, other_S = (np.frombuffer(each.sequences, "<f4").astype(np.float64) for each in (record, twin))
            settings = record.settings
            interval = Bootstrap(len(one_S), settings["resamples"], settings["seed"]).mean(one_S - other_S)
            return interval, int(record.result["tokens"])
    return None


def is_at_its_own_k(result: Result) -> bool:
    """True if the run was evaluated at its own K."""
    return bool(result.get("trained_k", result["k"]) == result["k"])


def sample_of(record: EvaluationRecord) -> tuple[str, int, int]:
    """Return the values that determine the evaluated sequences."""
    return record.fingerprint, record.result["tokens"], record.settings["seed"]


def evaluations_of_run(session: Session, run: RunRecord) -> list[EvaluationRecord]:
    """Return the evaluations of a run at its own K, newest first."""
    query = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    return list(session.scalars(query.order_by(EvaluationRecord.created_at.desc())))


def _summary(record: EvaluationRecord, bits: int | None) -> EvaluationSummary:
    prompts = min(record.settings["prompts"], record.result["sequences"])
    result = {**record.result, "prompts": prompts, "weight_bits": bits}
    metrics = tuple(
        EvaluationMetric(
            key=metric.key,
            title=metric.title,
            **{end: measured.get(end) for end in ("value", "low", "high")},
            unit=metric.unit,
            better=metric.better,
            description=metric.described(result),
            group=metric.group,
            section=metric.section,
            is_baseline=metric.is_baseline,
            term=metric.term,
        )
        for metric, measured in measured_in(result)
    )
    return EvaluationSummary(
        run=record.subject,
        text=record.text,
        tokens=result["tokens"],
        sequences=result["sequences"],
        created_at=aware(record.created_at),
        seen_text=result["seen_text"],
        metrics=metrics,
        warnings=tuple(EvaluationWarning(**warning) for warning in result["warnings"]),
    )
