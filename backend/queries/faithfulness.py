"""Faithfulness metrics of an evaluation, in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from mxd.backend.schemas.evaluations import EvaluationMetric
from mxd.trainer.utils.bootstrap import wilson_interval

Result = Mapping[str, Any]
Unit = Literal["nats", "share", "count", "plain"]

_BASELINES: tuple[tuple[str, str, str], ...] = (
    ("ce_zeroed", "MLP zero-ablated", "baseline: the MLP's output is set to zero"),
    ("ce_mean_ablated", "MLP mean-ablated", "baseline: the MLP's output is replaced by its mean over tokens"),
    ("ce_frozen", "mixing frozen at its median", "baseline: every token mixes the experts in the same way"),
)
"""Field, name and description of the losses that a run is compared with."""
_ROUTING: tuple[tuple[str, str, Unit, str], ...] = (
    (
        "routing_share",
        "Routing share",
        "share",
        "loss increase with the mixing frozen at its median, as a share of that of mean-ablating the MLP",
    ),
    (
        "strict_routing_share",
        "Strict routing share",
        "share",
        "the same with the constant mixing that fits the MLP best: what the shared dense path does without routing",
    ),
    (
        "decoder_share",
        "Decoder share",
        "share",
        "loss increase with the shared dense path frozen at its median, so that each expert adds a fixed direction, as "
        "a share of that of mean-ablating the MLP",
    ),
    ("l0", "L0", "count", "mean number of active experts per token"),
)
_PREDICTIONS: tuple[tuple[str, str, Unit, str], ...] = (
    (
        "kl",
        "KL divergence",
        "nats",
        "between the next-token distributions of the original model and of the model with the run, in nats per token",
    ),
    ("agreement", "Top-1 agreement", "share", "share of tokens with the same most probable next token"),
)
_RECONSTRUCTION: tuple[tuple[str, str, Unit, str], ...] = (
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
)
"""Field, name, unit and description of the metrics with intervals, by group."""


def faithfulness_metrics(result: Result, prompts: int) -> tuple[EvaluationMetric, ...]:
    """Return the metrics of each group, with descriptions."""
    groups = {
        "Next-token loss": _losses(result),
        "Routing": _with_intervals(result, _ROUTING),
        "Next-token distribution": _with_intervals(result, _PREDICTIONS),
        "Same greedy continuation": _continuations(result["continuations"], prompts),
        "Reconstruction of the MLP's output": _with_intervals(result, _RECONSTRUCTION),
        "Local behaviour": _jacobian(result.get("jacobian")),
    }
    return tuple(metric.model_copy(update={"group": name}) for name, group in groups.items() for metric in group)


def _losses(result: Result) -> Iterable[EvaluationMetric]:
    original = result["ce_original"]
    yield _interval(
        "Loss increase",
        result["loss_increase"],
        "nats",
        "rise of the next-token loss when the run replaces the MLP, in nats per token",
    )
    for field, name, meaning in _BASELINES:
        yield EvaluationMetric(
            name=f"Loss increase, {name}", value=result[field] - original, unit="nats", description=meaning
        )
    yield EvaluationMetric(
        name="Loss, original",
        value=original,
        unit="nats",
        description="next-token loss of the original model, in nats per token",
    )
    for kind in ("zero", "mean"):
        yield _interval(
            f"Loss recovered vs {kind} ablation",
            result[f"loss_recovered_{kind}"],
            "share",
            f"1 minus the loss increase divided by that of {kind} ablation",
        )


def _with_intervals(result: Result, metrics: tuple[tuple[str, str, Unit, str], ...]) -> tuple[EvaluationMetric, ...]:
    """Metrics that were measured. An older evaluation lacks some."""
    intervals = result["intervals"]
    return tuple(
        _interval(name, intervals[field], unit, meaning) for field, name, unit, meaning in metrics if field in intervals
    )


def _continuations(shares: Mapping[str, float], prompts: int) -> Iterable[EvaluationMetric]:
    """Share per length, with its Wilson interval over prompts."""
    for n, share in shares.items():
        low, high = wilson_interval(share, prompts)
        yield EvaluationMetric(
            name=f"Next {n} tokens" if int(n) > 1 else "Next token",
            value=share,
            low=low,
            high=high,
            unit="share",
            description=f"share of {prompts:,} prompts with the same greedy continuation with and without the run",
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
