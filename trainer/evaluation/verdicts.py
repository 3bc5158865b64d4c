"""What the figures of an evaluation mean, in words: low error proves nothing by itself, and somebody must say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.config import Method
from trainer.evaluation.health import Health, Shared
from trainer.evaluation.intervals import Interval

Level = Literal["alarm", "warning", "note"]

IDLE, WEAK = 0.05, 0.5
"""Routing shares under which the routing does nothing, and under which it does less than half."""
MANY_DEAD = 0.5
FULL_RANK = 0.99
MANY_TWINS = 0.05
CARRIES = 0.5
STILL = 0.05


@dataclass(frozen=True)
class Verdict:
    """One sentence."""

    level: Level
    text: str


def verdicts(
    method: Method, health: Health, shared: Shared, loss_recovered: Interval, routing_share: Interval, only: float
) -> tuple[Verdict, ...]:
    """What to know before trusting a layer, the gravest first; ``only`` is the loss recovered by the shared experts."""
    found = [
        *_routing(method, health, loss_recovered, routing_share),
        *_shared(shared, only),
        *_experts(health),
    ]
    order: tuple[Level, ...] = ("alarm", "warning", "note")
    return tuple(sorted(found, key=lambda verdict: order.index(verdict.level)))


def _routing(method: Method, health: Health, recovered: Interval, share: Interval) -> list[Verdict]:
    found = []
    if share.value < IDLE:
        found.append(
            Verdict(
                "alarm",
                f"The routing does nothing: with what it decides held at its mean, the layer loses {share.value:.1%} "
                f"of what the MLP is worth. It keeps {recovered.value:.0%} of the MLP's effect without its experts, so "
                "its low error says nothing about them.",
            )
        )
    elif share.value < WEAK:
        found.append(
            Verdict(
                "warning",
                f"The routing does {share.value:.0%} of the work; the rest is the same dense map for every token, and "
                "no expert explains it.",
            )
        )
    if method in ("mxd", "cross-layer-mxd") and health.mixing_variation < STILL:
        found.append(
            Verdict("alarm", f"The mixing hardly changes from token to token (by {health.mixing_variation:.1%}).")
        )
    if recovered.high < WEAK:
        found.append(Verdict("warning", f"Only {recovered.value:.0%} of the MLP's effect is kept."))
    return found


def _shared(shared: Shared, only: float) -> list[Verdict]:
    if not shared.always_on:
        return []
    which = f"Expert {shared.experts[0]} is" if shared.always_on == 1 else f"{shared.always_on} experts are"
    carried = f"; alone {'it keeps' if shared.always_on == 1 else 'they keep'} {only:.0%} of the MLP's effect"
    text = f"{which} on at nearly every token, with {shared.share:.0%} of all coefficients{carried}."
    return [Verdict("alarm" if only > CARRIES else "warning", text)]


def _experts(health: Health) -> list[Verdict]:
    found = []
    if health.load.dead_share > MANY_DEAD:
        found.append(Verdict("warning", f"{health.load.dead_share:.0%} of the experts were active on no token."))
    if health.twins.share > MANY_TWINS:
        found.append(Verdict("warning", f"{health.twins.share:.0%} of the experts have a duplicate."))
    if health.matrices is not None:
        rank = health.matrices.normalised_rank
        full = rank >= FULL_RANK
        text = f"The experts have {'full' if full else 'lost'} rank: {rank:.3f} of what their sizes allow."
        found.append(Verdict("note" if full else "warning", text))
    return found
