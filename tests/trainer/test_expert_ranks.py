"""The ranks of experts against numpy on the explicit matrices, and one that has lost some."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.layers import random_layer
from trainer.expert_ranks import measure_ranks
from trainer.layers.mxd import MxD


def mxd(hidden: int, output: int) -> MxD:
    """A layer with random weights."""
    layer = random_layer(widths=(12, hidden, output))
    assert isinstance(layer, MxD)
    return layer


@pytest.mark.parametrize(("hidden", "output"), [(20, 16), (16, 16), (10, 16)])
def test_they_are_those_of_the_explicit_matrices(hidden: int, output: int) -> None:
    layer, experts = mxd(hidden, output), [0, 3, 7]
    found = measure_ranks(layer, experts)
    matrices = [layer.expert_matrix(expert).detach().double().numpy() for expert in experts]
    singular = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
    assert found.normalised_rank == 1.0
    assert found.stable_rank == pytest.approx(np.mean([(it**2).sum() / it[0] ** 2 for it in singular]), rel=1e-6)
    assert found.smallest_singular_value == pytest.approx(min(it[-1] / it[0] for it in singular), rel=1e-5)
    assert found.smallest_scaling == layer.scaling_NO.abs().min().item()


def test_outputs_that_an_expert_has_closed_are_ranks_that_it_has_lost() -> None:
    layer = mxd(20, 16)
    with torch.no_grad():
        layer.scaling_NO[3, :4] = 0.0
    found = measure_ranks(layer, [3])
    assert found.normalised_rank == 12 / 16
    assert found.smallest_singular_value == pytest.approx(0.0, abs=1e-9)
    assert found.smallest_scaling == 0.0
