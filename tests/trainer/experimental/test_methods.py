"""muMoE and MxDs that mix hidden units: the trace of cores, the centre, training and saving."""

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Encoder, Method
from mxd.trainer.config.layer import Mixing
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.layers import HiddenMxD, TensorRingMxD
from mxd.trainer.layers.registry import build_layer
from tests.helpers.layers import layer_config, random_layer
from tests.helpers.runs import World

R = 3


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_tensor_ring_output_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = random_layer("tensor-ring-mxd", encoder=encoder, rank=R), torch.randn(7, 12)
    assert isinstance(layer, TensorRingMxD)
    output = layer(x_TI)
    activations_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.activations_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    expected_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", activations_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


def test_a_centred_layer_at_its_centre_outputs_only_the_bias() -> None:
    layer, x_TI = random_layer("hidden-mxd", mixing="centred"), torch.randn(7, 12)
    assert isinstance(layer, HiddenMxD)
    centre_TH = layer.mixing_centre_M.normal_().expand(7, -1)
    torch.testing.assert_close(layer.decode_mixed(layer.dense_output(x_TI), centre_TH), layer.output_bias.expand(7, -1))


def test_a_rank_is_required() -> None:
    with pytest.raises(UserError, match="needs a rank"):
        build_layer(layer_config("low-rank-mxd", rank=None))


@pytest.mark.parametrize(
    ("method", "rank"), [("low-rank-mxd", 4), ("tensor-ring-mxd", 2), ("autoencoder", None), ("molt", 8)]
)
def test_training_and_saving(world: World, method: Method, rank: int | None) -> None:
    layer = world.train(method=method, num_experts=None).layer
    assert (layer.method, layer.config.k, layer.config.rank) == (method, 4, rank)
    assert not isinstance(layer, TensorRingMxD) or layer.side == rank


@pytest.mark.parametrize("mixing", ["paper", "centred"])
def test_training_and_saving_of_hidden_mixing(world: World, tmp_path: Path, mixing: Mixing) -> None:
    run = world.train(method="hidden-mxd", num_experts=None, mixing=mixing)
    layer = run.layer
    assert isinstance(layer, HiddenMxD)
    assert layer.config.mixing == mixing
    assert bool((layer.mixing_bias_H if mixing == "paper" else layer.mixing_centre_M).abs().sum() > 0)
    assert layer.scaling_NO.shape == (layer.config.num_experts, layer.config.hidden_width)
    card = (run.save_pretrained(tmp_path / "shared") / "README.md").read_text()
    assert ("a C plus a learned constant" in card) == (mixing == "paper")
    assert "| activation |" not in card
