"""Tensor-ring MxD against the tensor contraction and explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder
from mxd.trainer.experimental.tensor_ring import TensorRingMxD
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world

R = 3


def layer_of(encoder: Encoder) -> TensorRingMxD:
    layer = random_layer_of("tensor-ring-mxd", encoder=encoder, rank=R)
    assert isinstance(layer, TensorRingMxD)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_output_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = layer_of(encoder), torch.randn(7, 12)
    output = layer(x_TI)
    coefficients_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.coefficients_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    expected_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", coefficients_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_matches_explicit_matrices(encoder: Encoder) -> None:
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


def test_training_and_saving(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config(method="tensor-ring-mxd"), world.data, world.database, world.language_model)
    layer = load_layer(Run.load("small", world.data).folder)
    assert isinstance(layer, TensorRingMxD)
    assert (layer.config.rank, layer.side) == (2, 2)
    world.database.dispose()
