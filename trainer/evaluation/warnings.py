"""Warnings about an evaluated layer: a low loss increase alone does not show that its experts do anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mxd.trainer.config import Method
from mxd.trainer.evaluation.health import Health, SharedExperts
from mxd.trainer.utils.bootstrap import Interval

Level = Literal["alarm", "warning", "note"]

IDLE_ROUTING_SHARE = 0.05
"""Routing share below which the routing does nothing."""
LOW_ROUTING_SHARE = 0.5
LOW_LOSS_RECOVERED = 0.5
HIGH_DEAD_SHARE = 0.5
HIGH_DUPLICATE_SHARE = 0.05
LOW_RANK = 0.95
"""Normalised rank below which the experts' matrices are reported; rounding to 8 bits costs 1 or 2 %."""
DOMINANT_LOSS_RECOVERED = 0.5
"""Loss recovered by the always-on experts alone above which they raise an alarm."""
LARGE_K_ERROR = 0.1
"""Relative difference between the mean number of active experts and K that is a warning."""
MEAN_K_METHODS = ("batch-topk-mxd",)
"""Methods whose K is a target for the mean over tokens."""
CONSTANT_MIXING_VARIATION = 0.05
"""Variation of the mixing vector below which it is nearly constant."""


@dataclass(frozen=True)
class EvaluationWarning:
    """A statement about an evaluated layer."""

    level: Level
    text: str


def find_warnings(
    method: Method,
    health: Health,
    shared: SharedExperts,
    loss_recovered: Interval,
    routing_share: Interval,
    loss_recovered_by_shared: float | None,
    tokens: int,
    active_experts: float,
    k: int,
) -> tuple[EvaluationWarning, ...]:
    """Return the warnings about a layer, the most severe first.

    Args:
        loss_recovered: loss recovered by the layer, relative to mean ablation.
        routing_share: the strict one, if the method has it.
        loss_recovered_by_shared: loss recovered by the always-on experts alone; None if there are none.
        tokens: number of evaluated tokens.
        active_experts: mean number of active experts per token.
        k: the layer's K.
    """
    warnings = [
        *_routing_warnings(method, health, loss_recovered, routing_share),
        *_shared_expert_warnings(shared, loss_recovered_by_shared),
        *_expert_warnings(health, tokens),
        *_target_warnings(method, active_experts, k, tokens),
    ]
    levels: tuple[Level, ...] = ("alarm", "warning", "note")
    return tuple(sorted(warnings, key=lambda warning: levels.index(warning.level)))


def _routing_warnings(
    method: Method, health: Health, recovered: Interval, routing_share: Interval
) -> list[EvaluationWarning]:
    warnings = []
    if routing_share.value < IDLE_ROUTING_SHARE:
        warnings.append(
            EvaluationWarning(
                "alarm",
                f"The routing does nothing: the routing share is {routing_share.value:.1%}. With a constant mixing "
                f"vector the layer still recovers {1 - routing_share.value:.0%} of the loss. A low error says nothing "
                "about the experts.",
            )
        )
    elif routing_share.value < LOW_ROUTING_SHARE:
        warnings.append(
            EvaluationWarning(
                "warning",
                f"The routing share is only {routing_share.value:.0%}. The rest of the layer's effect comes from a "
                "dense map that is the same for every token, so no expert explains it.",
            )
        )
    if method == "mxd" and health.mixing_variation < CONSTANT_MIXING_VARIATION:
        warnings.append(
            EvaluationWarning(
                "alarm",
                f"The mixing vector is nearly constant: it varies by {health.mixing_variation:.1%} over tokens.",
            )
        )
    if recovered.high < LOW_LOSS_RECOVERED:
        warnings.append(EvaluationWarning("warning", f"The layer recovers only {recovered.value:.0%} of the loss."))
    return warnings


def _target_warnings(method: Method, active_experts: float, k: int, tokens: int) -> list[EvaluationWarning]:
    if method not in MEAN_K_METHODS or abs(active_experts - k) <= LARGE_K_ERROR * k:
        return []
    text = f"{active_experts:.1f} experts are active per token instead of K = {k}, over {tokens:,} tokens."
    return [EvaluationWarning("warning", text)]


def _shared_expert_warnings(shared: SharedExperts, loss_recovered: float | None) -> list[EvaluationWarning]:
    if loss_recovered is None:
        return []
    experts = f"Expert {shared.experts[0]} is" if shared.always_on == 1 else f"{shared.always_on} experts are"
    verb = "it recovers" if shared.always_on == 1 else "they recover"
    text = (
        f"{experts} active on nearly every token, with {shared.coefficient_share:.0%} of the sum of all coefficients. "
        f"Alone {verb} {loss_recovered:.0%} of the loss."
    )
    return [EvaluationWarning("alarm" if loss_recovered > DOMINANT_LOSS_RECOVERED else "warning", text)]


def _expert_warnings(health: Health, tokens: int) -> list[EvaluationWarning]:
    warnings = []
    if health.load.dead_share > HIGH_DEAD_SHARE:
        text = f"{health.load.dead_share:.0%} of the experts are dead: not active on any of {tokens:,} tokens."
        warnings.append(EvaluationWarning("warning", text))
    if health.near_duplicates.share > HIGH_DUPLICATE_SHARE:
        compared = health.near_duplicates.compared
        text = f"{health.near_duplicates.share:.0%} of {compared:,} compared experts have a near-duplicate."
        warnings.append(EvaluationWarning("warning", text))
    ranks = health.expert_ranks
    if ranks is not None and ranks.normalized_rank < LOW_RANK:
        text = (
            f"The expert matrices have {ranks.normalized_rank:.0%} of the full rank, mean of {ranks.sampled:,} experts."
        )
        warnings.append(EvaluationWarning("warning", text))
    return warnings
