"""Low-rank MxD against explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder, LayerConfig, Method
from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import MxD
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.runs import small_world


def layer_of(method: Method, encoder: Encoder, **changes: int) -> MxD:
    sizes = {"input_width": 12, "hidden_width": 20, "output_width": 10, "num_experts": 33, "k": 5} | changes
    layer = build_layer(LayerConfig(method=method, activation="silu", encoder=encoder, **sizes))
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    assert isinstance(layer, MxD)
    return layer


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_matches_explicit_matrices(encoder: Encoder) -> None:
    layer = layer_of("low-rank-mxd", encoder, rank=3)
    x_TI = torch.randn(7, 12)
    output = layer(x_TI)
    z_TH = layer.encode(x_TI)
    for token, (coefficients_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        parts = [a * z_TH[token] @ layer.expert_matrix(int(n)) for a, n in zip(coefficients_K, ids_K, strict=True)]
        torch.testing.assert_close(output.output_TO[token], sum(parts) + layer.output_bias)
        norms_K = torch.stack([part.norm() for part in parts])
        torch.testing.assert_close(layer.contribution_norms(output.dense_TM, output.routing)[token], norms_K)
    assert torch.linalg.matrix_rank(layer.expert_matrix(0)) == 3


def test_a_rank_is_required() -> None:
    with pytest.raises(UserError, match="needs a rank"):
        layer_of("low-rank-mxd", "mlp")


@pytest.mark.parametrize("method", ["low-rank-mxd", "autoencoder"])
def test_training_and_saving(tmp_path: Path, method: Method) -> None:
    world = small_world(tmp_path)
    result = train_layer(
        world.config(method=method, num_experts=None), world.data, world.database, world.language_model
    )
    layer = Run.load("small", world.data).layer
    assert (result.status, layer.method) == ("finished", method)
    assert layer.config.k == 4
    assert layer.config.rank == (4 if method == "low-rank-mxd" else None)
    with pytest.raises(UserError, match="rank"):
        train_layer(world.config("other", rank=3), world.data, world.database, world.language_model)
    world.database.dispose()
