"""How far a circuit can be believed: predicted against measured effects of switching its experts off, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from statistics import StatisticsError, correlation

from trainer.circuits.config import CircuitConfig, TargetConfig
from trainer.circuits.effects import Effect, switch_off
from trainer.circuits.graph import Circuit
from trainer.language_model import LanguageModel
from trainer.progress import Progress, silent
from trainer.run import Run


@dataclass(frozen=True)
class Agreement:
    """How well predicted and measured effects go together."""

    experts: int
    """On tokens, each switched off alone."""
    correlation: float
    """Of Pearson; NaN where there are fewer than two or all are alike."""
    same_sign: float
    """Share of the experts whose effect has the predicted sign; NaN where there is none."""
    same_sign_of_large: float
    """The same among the half with the larger predicted effects."""
    slope: float
    """Measured on predicted, least squares through zero: below 1, the graph promises more than comes."""


def agreement(effects: Iterable[Effect]) -> Agreement:
    """Compare what was predicted with what was measured."""
    found = sorted(effects, key=lambda effect: -abs(effect.predicted))
    predicted, measured = [it.predicted for it in found], [it.measured for it in found]
    squares = sum(value * value for value in predicted)
    return Agreement(
        experts=len(found),
        correlation=_correlation(predicted, measured),
        same_sign=_same_sign(found),
        same_sign_of_large=_same_sign(found[: (len(found) + 1) // 2]),
        slope=sum(a * b for a, b in zip(predicted, measured, strict=True)) / squares if squares else nan,
    )


def check(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig,
    circuit: Circuit,
    progress: Progress = silent,
) -> tuple[Effect, ...]:
    """Switch every kept expert of a circuit off by itself, in the order of ``circuit.experts``.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``.
    """
    settings = {name: getattr(config, name) for name in TargetConfig.model_fields}
    target = TargetConfig(**{**settings, "target": circuit.target.id})
    return switch_off(language_model, runs, target, [[switch] for switch in circuit.experts], progress)


def _correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    try:
        return correlation(predicted, measured)
    except StatisticsError:
        return nan


def _same_sign(effects: Sequence[Effect]) -> float:
    if not effects:
        return nan
    return sum((it.predicted > 0) == (it.measured > 0) for it in effects) / len(effects)
