"""The tensor ring against the contraction that it is named for, and its explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.layers import random_layer_of
from tests.runs import small_world
from trainer.config import Encoder
from trainer.layers.registry import load_layer
from trainer.layers.tensor_ring import TensorRing
from trainer.run import Run
from trainer.train import train

R = 3


def layer_of(encoder: Encoder) -> TensorRing:
    layer = random_layer_of("tensor-ring-mxd", encoder=encoder, rank=R)
    assert isinstance(layer, TensorRing)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_the_answer_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(7, 12)
    output = layer(x_TI)
    coefficients_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.coefficients_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    wanted_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", coefficients_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, wanted_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_it_equals_its_explicit_matrices(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(7, 12)
    output, z_TH = layer(x_TI), layer.encode(x_TI)
    for token, (coefficients_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        parts = [a * z_TH[token] @ layer.expert_matrix(int(n)) for a, n in zip(coefficients_K, ids_K, strict=True)]
        torch.testing.assert_close(output.output_TO[token], sum(parts) + layer.output_bias, atol=1e-4, rtol=1e-4)
        norms_K = torch.stack([part.norm() for part in parts])
        torch.testing.assert_close(
            layer.contribution_norms(output.dense_TM, output.routing)[token], norms_K, atol=1e-4, rtol=1e-4
        )
    assert torch.linalg.matrix_rank(layer.expert_matrix(0)) == R * R


def test_fitted_and_saved(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train(world.config(method="tensor-ring-mxd"), world.data, world.store, world.language_model)
    layer = load_layer(Run.load("small", world.data).folder)
    assert isinstance(layer, TensorRing)
    assert (layer.config.rank, layer.side) == (2, 2)
    world.store.dispose()
