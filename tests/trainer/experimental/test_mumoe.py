"""Both forms of muMoE against their explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder, LayerConfig, Method
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.mumoe import LowRankMxD, TensorRingMxD
from mxd.trainer.layers.registry import build_layer, load_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world

R = 3


def layer_of(method: Method, encoder: Encoder) -> LowRankMxD:
    layer = random_layer_of(method, encoder=encoder, rank=R)
    assert isinstance(layer, LowRankMxD)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_tensor_ring_output_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = layer_of("tensor-ring-mxd", encoder), torch.randn(7, 12)
    output = layer(x_TI)
    activations_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.activations_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    expected_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", activations_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize(("method", "rank"), [("low-rank-mxd", R), ("tensor-ring-mxd", R * R)])
def test_matches_explicit_matrices(method: Method, rank: int, encoder: Encoder) -> None:
    layer, x_TI = layer_of(method, encoder), torch.randn(7, 12)
    output, z_TH = layer(x_TI), layer.encode(x_TI)
    for token, (activations_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        parts = [a * z_TH[token] @ layer.expert_matrix(int(n)) for a, n in zip(activations_K, ids_K, strict=True)]
        torch.testing.assert_close(output.output_TO[token], sum(parts) + layer.output_bias, atol=1e-4, rtol=1e-4)
        norms_K = layer.contribution_norms(output.dense_TM, output.routing)[token]
        torch.testing.assert_close(norms_K, torch.stack([part.norm() for part in parts]), atol=1e-4, rtol=1e-4)
    assert torch.linalg.matrix_rank(layer.expert_matrix(0)) == rank


def test_a_rank_is_required() -> None:
    sizes = {"input_width": 12, "hidden_width": 20, "output_width": 10, "num_experts": 33, "k": 5}
    with pytest.raises(UserError, match="needs a rank"):
        build_layer(LayerConfig(method="low-rank-mxd", activation="silu", encoder="mlp", **sizes))


@pytest.mark.parametrize(("method", "rank"), [("low-rank-mxd", 4), ("tensor-ring-mxd", 2), ("autoencoder", None)])
def test_training_and_saving(tmp_path: Path, method: Method, rank: int | None) -> None:
    world = small_world(tmp_path)
    config = world.config(method=method, num_experts=None)
    result = train_layer(config, world.data, world.database, world.language_model)
    layer = load_layer(Run.load("small", world.data).folder)
    assert (result.status, layer.method, layer.config.k, layer.config.rank) == ("finished", method, 4, rank)
    assert not isinstance(layer, TensorRingMxD) or layer.side == rank
    with pytest.raises(UserError, match="rank"):
        train_layer(world.config("other", rank=3), world.data, world.database, world.language_model)
    world.database.dispose()
