"""The damped Newton step and its certificate, where everything is known in closed form, and each way to be refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from trainer.privacy.certificate import Quadratic, certify, newton_step, radius_of_minima
from trainer.protect_config import NewtonConfig

MATRIX = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
MINIMUM = torch.tensor([0.3, -0.4], dtype=torch.float64)
ORIGIN = torch.zeros(2, dtype=torch.float64)
DAMPING = 0.5


def quadratic(at_D: torch.Tensor, matrix_DD: torch.Tensor = MATRIX) -> Quadratic:
    """½ (w - m)ᵀ A (w - m) + λ/2 |w|², as the step wants it."""
    away_D = at_D - MINIMUM
    value = 0.5 * away_D @ matrix_DD @ away_D + DAMPING / 2 * at_D @ at_D
    return Quadratic(float(value), matrix_DD @ away_D + DAMPING * at_D, matrix_DD)


def config(**changes: Any) -> NewtonConfig:
    return NewtonConfig(**({"experts": 2, "damping": DAMPING, "hessian_lipschitz": 0.25} | changes))


def test_one_step_ends_at_the_minimum_of_a_quadratic() -> None:
    minimum_D = torch.linalg.solve(MATRIX + DAMPING * torch.eye(2, dtype=torch.float64), MATRIX @ MINIMUM)
    for at_D in (ORIGIN, torch.tensor([3.0, -1.0], dtype=torch.float64)):
        assert torch.allclose(newton_step(at_D, quadratic(at_D), DAMPING), minimum_D)
    assert torch.linalg.vector_norm(minimum_D) <= radius_of_minima(quadratic(ORIGIN), DAMPING)


def test_noise_is_what_the_constants_ask_for() -> None:
    found = quadratic(ORIGIN)
    ends_D = newton_step(ORIGIN, found, DAMPING)
    given = config(radius=2.0, epsilon=0.5, delta=1e-4)
    made = certify(ORIGIN, ends_D, found, given, estimated_lipschitz=99)
    least = 1.5 - math.sqrt(0.5)  # of [[2, 0.5], [0.5, 1]]
    assert made.status == "holds"
    assert made.smallest_eigenvalue == pytest.approx(least)
    assert made.sensitivity == pytest.approx(2 * 2.0**2 * 0.25 / (DAMPING + least))
    assert made.sensitivity is not None
    assert made.sigma == pytest.approx(made.sensitivity / 0.5 * math.sqrt(2 * math.log(1.25 / 1e-4)))
    assert "(0.5, 0.0001)-indistinguishable" in made.reason
    assert certify(ORIGIN, ends_D, found, given.model_copy(update={"sigma": made.sigma}), 99).status == "holds"


def test_a_quadratic_has_a_constant_hessian_and_needs_no_noise() -> None:
    found = quadratic(ORIGIN)
    made = certify(ORIGIN, newton_step(ORIGIN, found, DAMPING), found, config(hessian_lipschitz=0.0), 99)
    assert (made.status, made.sensitivity, made.sigma) == ("holds", 0, 0)


def test_the_bound_holds_where_the_hessian_does_change() -> None:
    """w⁴ / 12 has a second derivative with the Lipschitz constant 2 r within r; its damped minimum is known."""
    at, centre = torch.zeros(1, dtype=torch.float64), 1.0
    gradient = torch.tensor([-(centre**3) / 3], dtype=torch.float64)
    found = Quadratic(centre**4 / 12, gradient, torch.tensor([[centre**2]], dtype=torch.float64))
    ends = newton_step(at, found, DAMPING)
    radius = radius_of_minima(found, DAMPING)
    made = certify(at, ends, found, config(hessian_lipschitz=2 * (radius + centre)), 0)
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (middle - centre) ** 3 / 3 + DAMPING * middle < 0 else (low, middle)
    assert made.status == "holds"
    assert made.sensitivity is not None
    assert 0 < abs(ends.item() - low) <= made.sensitivity


@pytest.mark.parametrize(
    ("changes", "matrix_DD", "sentence"),
    [
        ({}, -MATRIX, "raise --damping above 2.2"),
        ({"radius": 0.1}, MATRIX, "outside the radius of 0.1"),
        ({"radius": 0.45}, MATRIX, "The minimum may be as far as"),
        ({"epsilon": 1.0}, MATRIX, "lower --epsilon"),
        ({"sigma": 0.001, "radius": 5.0}, MATRIX, "leave --sigma out"),
    ],
)
def test_it_is_refused_with_a_sentence(changes: dict[str, Any], matrix_DD: torch.Tensor, sentence: str) -> None:
    there = quadratic(ORIGIN, matrix_DD)
    found = Quadratic(abs(there.value), there.gradient_D, there.hessian_DD)
    made = certify(ORIGIN, newton_step(ORIGIN, found, DAMPING), found, config(**changes), 99)
    assert made.status == "refused"
    assert sentence in made.reason
    assert made.sigma == changes.get("sigma", 0)


def test_an_estimated_constant_certifies_nothing() -> None:
    found = quadratic(ORIGIN)
    made = certify(ORIGIN, newton_step(ORIGIN, found, DAMPING), found, config(hessian_lipschitz=None), 3.0)
    assert made.status == "estimated"
    assert made.reason.startswith("Estimated, no certificate")
    assert (made.hessian_lipschitz, made.is_lipschitz_given, made.sigma) == (3.0, False, 0)
    assert made.calibrated_sigma is not None
