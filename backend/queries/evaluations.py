"""Stored evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.errors import NoEvaluationsError
from mxd.backend.queries.runs import aware
from mxd.backend.schemas import (
    EvaluationList,
    EvaluationMetric,
    EvaluationSummary,
    EvaluationWarning,
    LossDifference,
)
from mxd.trainer.evaluation.seeds import SeedGroup, group_by_seeds
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord
from mxd.trainer.utils.bootstrap import Bootstrap

Result = Mapping[str, Any]
Unit = Literal["nats", "share", "count", "plain"]


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
    records = _of(session, run)
    if not records:
        raise NoEvaluationsError(
            f"Run '{run.name}' has not been evaluated yet. Run 'mxd evaluate {run.name} --dataset DATASET'."
        )
    return records[0]


def evaluations_of(session: Session, run: RunRecord) -> EvaluationList:
    """Return all evaluations of a run, newest first."""
    return EvaluationList(evaluations=tuple(_summary(record) for record in _of(session, run)))


def loss_difference(session: Session, one: RunRecord, other: RunRecord) -> LossDifference | None:
    """Return the paired difference of two runs' loss increases, or None without evaluations on the same sequences."""
    others = {_sample(record): record for record in _of(session, other)}
    for record in _of(session, one):
        if twin := others.get(_sample(record)):
            one_S, other_S = (np.frombuffer(each.sequences, "<f4").astype(np.float64) for each in (record, twin))
            settings = record.settings
            interval = Bootstrap(len(one_S), settings["resamples"], settings["seed"]).mean(one_S - other_S)
            return LossDifference(**asdict(interval), tokens=record.result["tokens"])
    return None


def _sample(record: EvaluationRecord) -> tuple[str, int, int]:
    """The values that determine the evaluated sequences."""
    return record.fingerprint, record.result["tokens"], record.settings["seed"]


def _of(session: Session, run: RunRecord) -> list[EvaluationRecord]:
    query = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    return list(session.scalars(query.order_by(EvaluationRecord.created_at.desc())))


def _summary(record: EvaluationRecord) -> EvaluationSummary:
    result = record.result
    return EvaluationSummary(
        run=record.subject,
        text=record.text,
        tokens=result["tokens"],
        created_at=aware(record.created_at),
        seen_text=result["seen_text"],
        faithfulness=_faithfulness(result, min(record.settings["prompts"], result["sequences"])),
        health=_health(result),
        warnings=tuple(EvaluationWarning(**warning) for warning in result["warnings"]),
    )


_MEASURED: tuple[tuple[str, str, Unit, str], ...] = (
    (
        "routing_share",
        "Routing share",
        "share",
        "loss increase with the mixing frozen at its median, as a share of that of mean-ablating the MLP",
    ),
    (
        "kl",
        "KL divergence",
        "nats",
        "between the next-token distributions of the original model and of the model with the run, in nats",
    ),
    ("agreement", "Top-1 agreement", "share", "share of tokens with the same most probable next token"),
    (
        "variance_explained",
        "Variance explained",
        "share",
        "share of the variance of the MLP's output that the run reproduces",
    ),
    (
        "normalized_mse",
        "Normalised MSE",
        "plain",
        "mean of ‖ŷ − y‖² / ‖y‖² of the run's output ŷ and the MLP's y; predicting zero scores 1",
    ),
    ("paper_error", "MSE as in the paper's code", "plain", "mean of (ŷ − y)² / ‖y‖; depends on the scale of y"),
    ("l0", "L0", "count", "mean number of active experts per token"),
)
"""Field, name, unit and description of the metrics with intervals."""
_BASELINES: tuple[tuple[str, str, str], ...] = (
    ("ce_zeroed", "MLP zero-ablated", "baseline: the MLP's output is set to zero"),
    ("ce_mean_ablated", "MLP mean-ablated", "baseline: the MLP's output is replaced by its mean over tokens"),
    ("ce_frozen", "mixing frozen at its median", "baseline: every token mixes the experts in the same way"),
)
"""Field, name and description of the losses that a run is compared with."""


def _faithfulness(result: Result, prompts: int) -> tuple[EvaluationMetric, ...]:
    original = result["ce_original"]
    return (
        _interval(
            "Loss increase",
            result["loss_increase"],
            "nats",
            "increase in the next-token loss with the MLP replaced by the run, in nats per token",
        ),
        *(
            EvaluationMetric(
                name=f"Loss increase, {text}", value=result[name] - original, unit="nats", description=meaning
            )
            for name, text, meaning in _BASELINES
        ),
        EvaluationMetric(
            name="Loss, original",
            value=original,
            unit="nats",
            description="next-token loss of the original model, in nats per token",
        ),
        _interval(
            "Loss recovered vs zero ablation",
            result["loss_recovered_zero"],
            "share",
            "1 minus the loss increase divided by that of zero ablation",
        ),
        _interval(
            "Loss recovered vs mean ablation",
            result["loss_recovered_mean"],
            "share",
            "1 minus the loss increase divided by that of mean ablation",
        ),
        *(_interval(name, result["intervals"][field], unit, meaning) for field, name, unit, meaning in _MEASURED),
        *_jacobian(result.get("jacobian")),
        *_continuations(result["continuations"], prompts),
    )


def _continuations(shares: Mapping[str, float], prompts: int) -> tuple[EvaluationMetric, ...]:
    return tuple(
        EvaluationMetric(
            name=f"Next {n} tokens" if int(n) > 1 else "Next token",
            value=share,
            unit="share",
            description=f"share of {prompts:,} prompts with the same greedy continuation with and without the run",
            group="Same greedy continuation",
        )
        for n, share in shares.items()
    )


def _jacobian(result: Result | None) -> tuple[EvaluationMetric, ...]:
    """Return the agreement of the Jacobians, or nothing if it was not measured."""
    if result is None:
        return ()
    compared = f"{result['tokens']:,} tokens, {result['directions']} random directions each"
    products = "mean cosine of the Jacobian-vector products of layer and MLP"
    rows = (
        ("random", "Jacobian agreement", f"{products}; {compared}"),
        ("data", "Jacobian agreement, data", "the same along differences between held-out inputs"),
        ("random_control", "Jacobian control", "as the agreement, with the MLP's Jacobian at another token"),
        ("data_control", "Jacobian control, data", "the same along differences between held-out inputs"),
    )
    return tuple(_interval(name, result[field], "plain", meaning) for field, name, meaning in rows)


def _interval(name: str, value: Result, unit: Unit, meaning: str) -> EvaluationMetric:
    return EvaluationMetric(
        name=name, value=value["value"], low=value["low"], high=value["high"], unit=unit, description=meaning
    )


_Row = tuple[str, Any, Unit, str]
"""Name, value, unit and description of a metric."""


def _health(result: Result) -> tuple[EvaluationMetric, ...]:
    rows = (*_load_rows(result), *_always_on_rows(result), *_matrix_rows(result))
    return tuple(
        EvaluationMetric(name=name, value=value, unit=unit, description=meaning) for name, value, unit, meaning in rows
    )


def _load_rows(result: Result) -> tuple[_Row, ...]:
    load = result["health"]["load"]
    return (
        ("Dead experts", load["dead_share"], "share", f"active on none of {result['tokens']:,} tokens"),
        (
            "Effective experts",
            load["effective_experts"],
            "count",
            f"equally used experts with the same entropy, of {result['num_experts']:,}",
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
    return (
        ("Always-on experts", shared["always_on"], "count", "active on nearly every token"),
        (
            "Share of activation",
            shared["coefficient_share"],
            "share",
            "always-on experts' share of all activations; the densest expert's if there are none",
        ),
        (
            "Share of output norm",
            shared["output_share"],
            "share",
            "share of the summed output norms of the same experts",
        ),
        (
            "Loss increase without them",
            shared["loss_increase_without"],
            "nats",
            "nats per token with the same experts ablated",
        ),
        (
            "Loss increase with only them",
            shared["loss_increase_only"],
            "nats",
            "nats per token with all other experts ablated",
        ),
    )


def _matrix_rows(result: Result) -> tuple[_Row, ...]:
    health = result["health"]
    near_duplicates, ranks = health["near_duplicates"], health["expert_ranks"] or {}
    compared = f"over {near_duplicates['compared']:,} experts"
    sampled = f"mean over {ranks['sampled']:,} expert matrices" if ranks else "not measured"
    smallest = (
        f"relative to the largest, minimum over {ranks['sampled']:,} expert matrices" if ranks else "not measured"
    )
    return (
        (
            "Variation of the mixing vector",
            health["mixing_variation"],
            "share",
            "standard deviation over tokens, relative to the mean",
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
            "smallest absolute value in any scaling vector; 0 removes an output dimension of the expert",
        ),
    )
