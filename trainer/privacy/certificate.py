"""A damped Newton step, the noise that hides where it began, and whether that is proved.

    w⁻ = w - (H + λI)⁻¹ ∇ + N(0, σ²I),   σ = (Δ/ε) √(2 ln(1.25/δ)),   Δ = 2 C² M / (λ + λ_min)

after Ashiq et al. (arXiv 2509.11625), Δ in its exact form. ∇ is the gradient of the whole objective at w, its penalty
λ/2 |w|² included; H and its smallest eigenvalue λ_min are without the penalty. Δ bounds how far the step can end from a
minimum: with a Hessian whose Lipschitz constant is M, and both w and the minimum within C of 0, the error of one
Newton step is at most M/2 (2C)² / (λ + λ_min). With that noise nobody who holds the result can tell the step from the
minimum itself better than (ε, δ) allows; proved for ε < 1. Where any of this is not known to hold, there is no
certificate, and the reason is said.

Shapes: D scales that are moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trainer.protect_config import NewtonConfig

Status = Literal["holds", "refused", "estimated"]
ROUNDING = 1e-9
"""As a share: what two ways to the same number may differ by."""


@dataclass(frozen=True)
class Quadratic:
    """The objective around where the step begins, in float64."""

    value: float
    """Of all of it. No part of it can be negative."""
    gradient_D: Tensor
    """Of all of it."""
    hessian_DD: Tensor
    """Without the penalty."""


@dataclass(frozen=True)
class Certificate:
    """What was used, and what follows from it."""

    status: Status
    reason: str
    """Why it does not hold; where it does, what it says."""
    epsilon: float
    delta: float
    damping: float
    radius: float
    hessian_lipschitz: float
    is_lipschitz_given: bool
    """Whether M is a bound that was given; otherwise it is the largest that was met, which proves nothing."""
    smallest_eigenvalue: float
    """Of the Hessian without its damping."""
    step_length: float
    sensitivity: float | None
    """Δ; None where the damped Hessian is not positive."""
    calibrated_sigma: float | None
    """What Δ, ε and δ ask for."""
    sigma: float
    """Of the noise that was added."""


def newton_step(at_D: Tensor, found: Quadratic, damping: float) -> Tensor:
    """Where the damped step ends, [D], before any noise."""
    damped_DD = found.hessian_DD + damping * torch.eye(len(at_D), dtype=at_D.dtype)
    step_D: Tensor = torch.linalg.solve(damped_DD, found.gradient_D)
    return at_D - step_D


def smallest_eigenvalue(hessian_DD: Tensor) -> float:
    """Of a symmetric matrix."""
    return float(torch.linalg.eigvalsh((hessian_DD + hessian_DD.T) / 2)[0])


def radius_of_minima(found: Quadratic, damping: float) -> float:
    """How far from 0 the global minimum can be: its penalty alone is at most what the objective is elsewhere."""
    return math.sqrt(2 * found.value / damping)


def sensitivity(radius: float, hessian_lipschitz: float, damped: float) -> float:
    """Δ, for a damped smallest eigenvalue that is positive."""
    return 2 * radius**2 * hessian_lipschitz / damped


def calibrated(delta_of_step: float, epsilon: float, delta: float) -> float:
    """σ of the Gaussian mechanism."""
    return delta_of_step / epsilon * math.sqrt(2 * math.log(1.25 / delta))


def certify(
    at_D: Tensor, ends_D: Tensor, found: Quadratic, config: NewtonConfig, estimated_lipschitz: float
) -> Certificate:
    """What can be said of a step from ``at_D`` to ``ends_D``, and with how much noise.

    Args:
        at_D: where it begins.
        ends_D: where it ends, without noise.
        found: the objective at ``at_D``.
        config: the constants.
        estimated_lipschitz: stands for M where none was given.
    """
    least = smallest_eigenvalue(found.hessian_DD)
    within = radius_of_minima(found, config.damping)
    radius = config.radius or within
    given = config.hessian_lipschitz
    lipschitz = estimated_lipschitz if given is None else given
    damped = config.damping + least
    bound = sensitivity(radius, lipschitz, damped) if damped > 0 else None
    wanted = None if bound is None else calibrated(bound, config.epsilon, config.delta)
    refusal = (
        _not_positive(damped, config)
        or _too_far(at_D, ends_D, radius, within)
        or _not_private(config)
        or _other_noise(wanted, config)
    )
    unproved = None if given is not None else _ESTIMATED
    status: Status = "refused" if refusal else "estimated" if unproved else "holds"
    noise = config.sigma if config.sigma is not None else (wanted or 0.0) if status == "holds" else 0.0
    return Certificate(
        status=status,
        reason=refusal or unproved or _says(config),
        epsilon=config.epsilon,
        delta=config.delta,
        damping=config.damping,
        radius=radius,
        hessian_lipschitz=lipschitz,
        is_lipschitz_given=given is not None,
        smallest_eigenvalue=least,
        step_length=float(torch.linalg.vector_norm(ends_D - at_D)),
        sensitivity=bound,
        calibrated_sigma=wanted,
        sigma=noise,
    )


_ESTIMATED = (
    "Estimated, no certificate: the Hessian's Lipschitz constant M was measured at a few places, which bounds nothing; "
    "give one that is proved with --hessian-lipschitz."
)


def _says(config: NewtonConfig) -> str:
    return (
        f"The scales are ({config.epsilon:g}, {config.delta:g})-indistinguishable from those of the objective's "
        "minimum, if M is what it was given as; nothing is said of weights that were not moved."
    )


def _not_positive(damped: float, config: NewtonConfig) -> str | None:
    if damped > 0:
        return None
    return (
        f"The damped Hessian's smallest eigenvalue is {damped:.3g}, so a step need not come near a minimum; raise "
        f"--damping above {config.damping - damped:.3g}."
    )


def _too_far(at_D: Tensor, ends_D: Tensor, radius: float, within: float) -> str | None:
    """Why the radius does not hold what it has to: where the step begins, where it ends, the minimum."""
    length = max(float(torch.linalg.vector_norm(point_D)) for point_D in (at_D, ends_D))
    if length > radius * (1 + ROUNDING):
        return f"The scales have a length of {length:.3g}, outside the radius of {radius:.3g}; raise --radius."
    if within > radius * (1 + ROUNDING):
        return (
            f"The minimum may be as far as {within:.3g} away, outside the radius of {radius:.3g}; raise --radius or "
            "--damping."
        )
    return None


def _not_private(config: NewtonConfig) -> str | None:
    if config.epsilon < 1:
        return None
    return f"The noise is proved for an epsilon below 1, and this is {config.epsilon:g}; lower --epsilon."


def _other_noise(wanted: float | None, config: NewtonConfig) -> str | None:
    if config.sigma is None or wanted is None or math.isclose(config.sigma, wanted, rel_tol=1e-6):
        return None
    return (
        f"The noise has a standard deviation of {config.sigma:.3g}, and what was used asks for {wanted:.3g}; leave "
        "--sigma out."
    )
