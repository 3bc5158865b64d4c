"""What ``mxd evaluate`` has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.errors import NoEvaluationsError
from backend.queries.runs import aware
from backend.schemas import EvaluationList, EvaluationSummary, Fact, Verdict
from trainer.evaluation.seeds import Seeds, by_seeds
from trainer.store import EvaluationRecord, RunRecord

Result = Mapping[str, Any]
Unit = Literal["nats", "share", "count", "plain"]


def evaluated(session: Session) -> list[EvaluationRecord]:
    """Evaluations of single runs, by text, method and K.

    Raises:
        NoEvaluationsError: there are none.
    """
    wanted = select(EvaluationRecord).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
    order = (EvaluationRecord.text, RunRecord.method, RunRecord.k, RunRecord.seed, RunRecord.name)
    found = [record for record in session.scalars(wanted.order_by(*order)) if "verdicts" in record.result]
    if not found:
        raise NoEvaluationsError("No run has been evaluated yet; do it with mxd evaluate NAME --text ….")
    return found


def seeds(session: Session) -> list[Seeds]:
    """The same, those that differ in their seed alone together.

    Raises:
        NoEvaluationsError: there are none.
    """
    return by_seeds((record, session.get_one(RunRecord, record.run_id).config) for record in evaluated(session))


def added(session: Session) -> list[EvaluationRecord]:
    """Measurements of runs that were put in place one by one; those that were fitted alone first.

    Raises:
        NoEvaluationsError: there are none.
    """
    wanted = select(EvaluationRecord).order_by(EvaluationRecord.text, EvaluationRecord.created_at)
    found = [record for record in session.scalars(wanted) if "steps" in record.result]
    if not found:
        raise NoEvaluationsError(
            "No runs have been put in place one by one yet; do it with mxd evaluate RUN RUN … --added --text …."
        )
    return sorted(found, key=lambda record: bool(record.result["fine_tuned"]))


def newest(session: Session, run: RunRecord) -> EvaluationRecord:
    """The last evaluation of a run.

    Raises:
        NoEvaluationsError: it has none.
    """
    found = _of(session, run)
    if not found:
        raise NoEvaluationsError(f"{run.name} has not been evaluated yet; do it with mxd evaluate {run.name} --text ….")
    return found[0]


def evaluations_of(session: Session, run: RunRecord) -> EvaluationList:
    """All of a run's, the newest first."""
    return EvaluationList(evaluations=tuple(_summary(record) for record in _of(session, run)))


def _of(session: Session, run: RunRecord) -> list[EvaluationRecord]:
    wanted = select(EvaluationRecord).where(EvaluationRecord.subject == run.name)
    return list(session.scalars(wanted.order_by(EvaluationRecord.created_at.desc())))


def _summary(record: EvaluationRecord) -> EvaluationSummary:
    result = record.result
    return EvaluationSummary(
        run=record.subject,
        text=record.text,
        tokens=result["tokens"],
        created_at=aware(record.created_at),
        seen_text=result["seen_text"],
        faithfulness=_faithfulness(result),
        health=_health(result),
        verdicts=tuple(Verdict(**verdict) for verdict in result["verdicts"]),
    )


def _faithfulness(result: Result) -> tuple[Fact, ...]:
    original = result["ce_original"]
    measured: tuple[tuple[str, str, Unit, str], ...] = (
        (
            "routing_share",
            "Routing share",
            "share",
            "of the MLP's effect, lost when the mixing is frozen",
        ),
        ("kl", "KL divergence", "nats", "of the next-token distribution from the original's"),
        ("agreement", "Top-1 agreement", "share", "of tokens with the same most probable next token"),
        ("normalised_mse", "Normalised MSE", "plain", "mean of ‖ŷ − y‖² / ‖y‖²"),
        ("paper_error", "Error of the paper's code", "plain", "mean of (ŷ − y)² / ‖y‖; depends on the scale of y"),
        ("variance_explained", "Variance explained", "share", "of the MLP's output around its mean"),
        ("l0", "L0", "count", "active experts a token"),
    )
    plain: tuple[tuple[str, str], ...] = (
        ("ce_zeroed", "MLP zeroed"),
        ("ce_mean_ablated", "MLP at its mean"),
        ("ce_frozen", "mixing frozen at its mean"),
    )
    return (
        _interval("Added loss", result["delta_ce"], "nats", "with the run in the MLP's place"),
        *(
            Fact(name=f"Added loss, {text}", value=result[name] - original, unit="nats", meaning="to compare with")
            for name, text in plain
        ),
        Fact(name="Loss, original", value=original, unit="nats", meaning="of the language model as it is"),
        _interval("Recovered, of zeroing", result["loss_recovered_zero"], "share", "of the loss that zeroing adds"),
        _interval("Recovered, of the mean", result["loss_recovered_mean"], "share", "of the loss that the mean adds"),
        *(_interval(name, result["intervals"][field], unit, meaning) for field, name, unit, meaning in measured),
        *(
            Fact(name=f"Same next {n} tokens", value=share, unit="share", meaning="of greedy continuations")
            for n, share in result["continuations"].items()
        ),
    )


def _interval(name: str, value: Result, unit: Unit, meaning: str) -> Fact:
    return Fact(name=name, value=value["value"], low=value["low"], high=value["high"], unit=unit, meaning=meaning)


def _health(result: Result) -> tuple[Fact, ...]:
    health, shared = result["health"], result["shared_expert"]
    load, twins, matrices = health["load"], health["twins"], health["matrices"] or {}
    rows: tuple[tuple[str, Any, Unit, str], ...] = (
        ("Dead experts", load["dead_share"], "share", "active on none of the tokens"),
        (
            "Effective experts",
            load["effective_experts"],
            "count",
            f"of {result['num_experts']:,}; 2 to the entropy",
        ),
        ("Entropy of the load", load["entropy"], "plain", "bits"),
        ("Gini of the load", load["gini"], "plain", "0: all used alike; 1: one does it all"),
        ("Largest usage", load["largest_usage"], "share", "of tokens, by the most used expert"),
        ("Always-on experts", shared["always_on"], "count", "on at nearly every token"),
        ("Share of coefficients", shared["share"], "share", "of these or, where none is, of the most used expert"),
        ("Share of output norm", shared["output_share"], "share", "of the same"),
        ("Added loss without them", shared["delta_ce_without"], "nats", "all others as they are"),
        ("Added loss with only them", shared["delta_ce_only"], "nats", "all others off"),
        ("Variation of the mixing", health["mixing_variation"], "share", "spread over tokens against its mean"),
        ("Experts with a duplicate", twins["share"], "share", "cosine of gate and scaling 0.95 or more"),
        ("Nearest gate, median cosine", twins["gate_median"], "plain", f"over {twins['compared']:,} experts"),
        ("Nearest scaling, median cosine", twins["scaling_median"], "plain", f"over {twins['compared']:,} experts"),
        ("Normalised rank", matrices.get("normalised_rank"), "plain", "of W_n; 1 is full"),
        ("Stable rank", matrices.get("stable_rank"), "plain", "of W_n"),
        ("Smallest singular value", matrices.get("smallest_singular_value"), "plain", "as a share of the largest"),
        ("Smallest |c|", matrices.get("smallest_scaling"), "plain", "over all experts; 0 costs rank"),
    )
    return tuple(Fact(name=name, value=value, unit=unit, meaning=meaning) for name, value, unit, meaning in rows)
