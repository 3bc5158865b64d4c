"""Means over concepts, with the strength of each concept chosen on other prompts than the reported ones.

Shapes: C concepts, P prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mxd.trainer.experimental.concepts.config import ConceptSteeringConfig
from mxd.trainer.experimental.concepts.results import ConceptDetection, Dose, DoseSummary, Method, MethodSummary
from mxd.trainer.utils.bootstrap import Bootstrap, Interval


def _interval(values: Sequence[float], config: ConceptSteeringConfig) -> Interval:
    return Bootstrap(len(values), config.resamples, config.seed).mean(np.array(values, np.float64))


def mean_aurocs(detections: Sequence[ConceptDetection], config: ConceptSteeringConfig) -> dict[str, Interval]:
    """Mean AUROC over concepts of each method and of the classifier."""
    means = {name: _interval([each.auroc[name].value for each in detections], config) for name in detections[0].auroc}
    return {**means, "classifier": _interval([each.classifier_auroc.value for each in detections], config)}


def curves(doses: Sequence[Dose], config: ConceptSteeringConfig) -> tuple[DoseSummary, ...]:
    """Mean gain and loss increase over concepts and all prompts, for each method and strength."""
    return tuple(
        DoseSummary(
            method=method,
            strength=strength,
            gain=_interval([float(np.mean(each.gain)) for each in group], config),
            loss_increase=_interval([float(np.mean(each.loss_increase)) for each in group], config),
        )
        for method in _methods(doses)
        for strength in config.strengths
        for group in [[each for each in doses if (each.method, each.strength) == (method, strength)]]
    )


def method_summaries(doses: Sequence[Dose], config: ConceptSteeringConfig) -> tuple[MethodSummary, ...]:
    """Gain of each method at the strength chosen for each concept, on the prompts that had no part in the choice."""
    reported = {method: _chosen(doses, method, config) for method in _methods(doses)}
    return tuple(
        MethodSummary(
            method=method,
            gain=_interval([gain for gain, _ in values], config),
            loss_increase=_interval([increase for _, increase in values], config),
            over_random_expert=_interval(
                [own[0] - other[0] for own, other in zip(values, reported["random_expert"], strict=True)], config
            ),
        )
        for method, values in reported.items()
    )


def _chosen(doses: Sequence[Dose], method: Method, config: ConceptSteeringConfig) -> list[tuple[float, float]]:
    """Gain and loss increase of each concept on every second prompt. The strength has the largest gain on the other
    prompts among those whose loss increase is allowed there; without one, nothing is steered."""
    reported = []
    for concept in dict.fromkeys(each.concept for each in doses):
        own = [each for each in doses if (each.concept, each.method) == (concept, method)]
        allowed = [each for each in own if np.mean(each.loss_increase[::2]) <= config.max_loss_increase]
        if not allowed:
            reported.append((0.0, 0.0))
            continue
        best = max(allowed, key=lambda each: float(np.mean(each.gain[::2])))
        reported.append((float(np.mean(best.gain[1::2])), float(np.mean(best.loss_increase[1::2]))))
    return reported


def _methods(doses: Sequence[Dose]) -> list[Method]:
    return list(dict.fromkeys(each.method for each in doses))
