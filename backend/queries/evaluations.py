"""Stored evaluations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.faithfulness import Result, Unit, faithfulness_metrics
from mxd.backend.queries.runs import aware
from mxd.backend.schemas.comparison import LossDifference
from mxd.backend.schemas.evaluations import EvaluationMetric, EvaluationSummary, EvaluationWarning
from mxd.trainer.evaluation.seeds import SeedGroup, group_by_seeds
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap


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


def loss_difference(session: Session, one: RunRecord, other: RunRecord) -> LossDifference | None:
    """Return the paired difference of two runs' loss increases, or None without evaluations on the same sequences."""
    others = {sample_of(record): record for record in evaluations_of_run(session, other)}
    for record in evaluations_of_run(session, one):
        if twin := others.get(sample_of(record)):
            one_S, other_S = (np.frombuffer(each.sequences, "<f4").astype(np.float64) for each in (record, twin))
            settings = record.settings
            interval = Bootstrap(len(one_S), settings["resamples"], settings["seed"]).mean(one_S - other_S)
            return LossDifference(**asdict(interval), tokens=record.result["tokens"])
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
    result = record.result
    return EvaluationSummary(
        run=record.subject,
        text=record.text,
        tokens=result["tokens"],
        sequences=result["sequences"],
        created_at=aware(record.created_at),
        seen_text=result["seen_text"],
        faithfulness=faithfulness_metrics(result, min(record.settings["prompts"], result["sequences"])),
        health=_health(result, bits),
        warnings=tuple(EvaluationWarning(**warning) for warning in result["warnings"]),
    )


_Row = tuple[str, Any, Unit, str]
"""Name, value, unit and description of a metric."""


def _health(result: Result, bits: int | None) -> tuple[EvaluationMetric, ...]:
    groups = {
        "Use of the experts": _load_rows(result),
        "Always-on experts": _always_on_rows(result),
        "Similarity and rank": _matrix_rows(result, bits),
    }
    return tuple(
        EvaluationMetric(name=name, value=value, unit=unit, description=meaning, group=group)
        for group, rows in groups.items()
        for name, value, unit, meaning in rows
    )


def _load_rows(result: Result) -> tuple[_Row, ...]:
    load = result["health"]["load"]
    return (
        ("Inactive experts", load["dead_share"], "share", f"active on none of {result['tokens']:,} tokens"),
        (
            "Effective experts",
            load["effective_experts"],
            "count",
            f"equally used experts with the same entropy, of {result['num_experts']:,}; on {result['tokens']:,} tokens",
        ),
        ("Entropy of the load", load["entropy"], "plain", "entropy of the experts' shares of all activations, in bits"),
        (
            "Gini of the load",
            load["gini"],
            "plain",
            "inequality of use: 0 if all experts are used equally, 1 if one has all activations",
        ),
        ("Highest density", load["max_density"], "share", "share of tokens of the densest expert"),
    )


def _always_on_rows(result: Result) -> tuple[_Row, ...]:
    shared = result["shared_expert"]
    some = shared["always_on"] > 0
    whose, note = ("always-on experts'", "") if some else ("the densest expert's", "; no expert is always on")
    measured = "" if some else "not measured, as no expert is always on: "
    return (
        ("Always-on experts", shared["always_on"], "count", "active on nearly every token"),
        ("Share of activation", shared["coefficient_share"], "share", f"{whose} share of all summed activations{note}"),
        ("Share of output norm", shared["output_share"], "share", f"{whose} share of the summed output norms{note}"),
        (
            "Loss increase without them",
            shared["loss_increase_without"],
            "nats",
            f"{measured}nats per token with the always-on experts ablated",
        ),
        (
            "Loss increase with only them",
            shared["loss_increase_only"],
            "nats",
            f"{measured}nats per token with all other experts ablated",
        ),
    )


def _sample_of(count: int, result: Result) -> str:
    everything: int = result["num_experts"]
    return (
        f"all {count:,} experts" if count == everything else f"a random sample of {count:,} of {everything:,} experts"
    )


def _matrix_rows(result: Result, bits: int | None) -> tuple[_Row, ...]:
    health = result["health"]
    near_duplicates, ranks = health["near_duplicates"], health["expert_ranks"] or {}
    compared = f"{_sample_of(near_duplicates['compared'], result)}, each compared with all others"
    matrices = _sample_of(ranks["sampled"], result) if ranks else ""
    weights = f"; weights as stored, rounded to {bits} bits" if bits else ""
    sampled = f"mean over {matrices}{weights}" if ranks else "not measured"
    smallest = f"relative to the largest, minimum over {matrices}{weights}" if ranks else "not measured"
    scaling = f"0 removes an output dimension of the expert{weights}" if ranks else "not measured"
    return (
        (
            "Variation of the mixing vector",
            health["mixing_variation"],
            "plain",
            "standard deviation over tokens divided by the mean; 0 is the same mixing on every token",
        ),
        (
            "Near-duplicate experts",
            near_duplicates["share"],
            "share",
            f"cosine of both gate and scaling vectors at least 0.95; {compared}",
        ),
        (
            "Nearest gate, median cosine",
            near_duplicates["gate_median"],
            "plain",
            f"cosine of gate vectors with the most similar expert; {compared}",
        ),
        (
            "Nearest scaling, median cosine",
            near_duplicates["scaling_median"],
            "plain",
            f"cosine of scaling vectors with the most similar expert; {compared}",
        ),
        (
            "Normalised rank",
            ranks.get("normalized_rank"),
            "plain",
            f"rank divided by the largest possible rank; {sampled}",
        ),
        ("Stable rank", ranks.get("stable_rank"), "plain", f"effective number of output directions; {sampled}"),
        ("Smallest singular value", ranks.get("min_singular_value"), "plain", smallest),
        (
            "Smallest |c|",
            ranks.get("min_scaling"),
            "plain",
            f"smallest absolute value in any scaling vector; {scaling}",
        ),
    )
