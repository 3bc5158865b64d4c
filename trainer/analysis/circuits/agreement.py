"""Agreement between a circuit's predictions and measured ablation effects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import StatisticsError, correlation

from mxd.trainer.analysis.circuits.ablation import ablate_experts
from mxd.trainer.analysis.circuits.graph import AblationEffect, Agreement, Circuit
from mxd.trainer.config.analysis import CircuitConfig, TargetConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

MIN_CORRELATED = 5
"""Fewest effects for which a correlation and a slope are computed."""


def agreement(effects: Iterable[AblationEffect]) -> Agreement:
    """Compare predicted with measured effects."""
    ranked = sorted(effects, key=lambda effect: -abs(effect.predicted))
    predicted, measured = [effect.predicted for effect in ranked], [effect.measured for effect in ranked]
    return Agreement(
        experts=len(ranked),
        correlation=_correlation(predicted, measured),
        correlation_without_largest=_correlation(predicted[1:], measured[1:]),
        same_sign=_same_sign(ranked),
        same_sign_of_large=_same_sign(ranked[: (len(ranked) + 1) // 2]),
        slope=_slope(predicted, measured),
    )


def ablate_each_expert(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    circuit: Circuit,
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[AblationEffect, ...]:
    """Ablate each expert of a circuit on its own, in the order of ``circuit.experts``.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``.
        CancelledError: the task was cancelled.
    """
    settings = {name: getattr(config, name) for name in TargetConfig.model_fields}
    target = TargetConfig(**{**settings, "target": circuit.target.id})
    return ablate_experts(language_model, runs, target, [[expert] for expert in circuit.experts], callbacks)


def _correlation(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    if len(predicted) < MIN_CORRELATED:
        return None
    try:
        return _finite(correlation(predicted, measured))
    except StatisticsError:
        return None


def _slope(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    squares = sum(value * value for value in predicted)
    if len(predicted) < MIN_CORRELATED or not squares:
        return None
    return _finite(sum(a * b for a, b in zip(predicted, measured, strict=True)) / squares)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _same_sign(effects: Sequence[AblationEffect]) -> float | None:
    if not effects:
        return None
    return sum((effect.predicted > 0) == (effect.measured > 0) for effect in effects) / len(effects)
