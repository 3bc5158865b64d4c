"""An MxD that mixes hidden units, against explicit matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config.layer import Mixing
from mxd.trainer.experimental.hidden import HiddenMxD
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world


def layer_of(mixing: Mixing) -> HiddenMxD:
    config = random_layer_of("hidden-mxd").config.model_copy(update={"mixing": mixing})
    layer = build_layer(config)
    assert isinstance(layer, HiddenMxD)
    generator = torch.Generator().manual_seed(0)
    for value in (*layer.parameters(), *layer.buffers()):
        value.data.normal_(0, 0.5, generator=generator)
    return layer


@pytest.mark.parametrize("mixing", ["paper", "centred"])
def test_matches_explicit_matrices(mixing: Mixing) -> None:
    layer, x_TI = layer_of(mixing), torch.randn(7, 12)
    output = layer(x_TI)
    constant_H = layer.mixing_bias_H if mixing == "paper" else -layer.mixing_centre_M
    unrouted_TO = layer.decoder(layer.encoder(x_TI) * constant_H) + layer.output_bias
    for token, (activations_K, ids_K) in enumerate(zip(*output.routing, strict=True)):
        outputs_K = [
            a * (x_TI[token] @ layer.expert_matrix(int(n)) + layer.decoder(layer.encoder.bias * layer.scaling_NO[n]))
            for a, n in zip(activations_K, ids_K, strict=True)
        ]
        torch.testing.assert_close(output.output_TO[token], sum(outputs_K) + unrouted_TO[token], atol=1e-4, rtol=1e-4)
        norms_K = torch.stack([output_O.norm() for output_O in outputs_K])
        measured_K = layer.contribution_norms(output.dense_TM, output.routing)[token]
        torch.testing.assert_close(measured_K, norms_K, atol=1e-4, rtol=1e-4)


def test_a_centred_layer_at_its_centre_outputs_only_the_bias() -> None:
    layer, x_TI = layer_of("centred"), torch.randn(7, 12)
    centre_TH = layer.mixing_centre_M.expand(7, -1)
    torch.testing.assert_close(layer.decode_mixed(layer.dense_output(x_TI), centre_TH), layer.output_bias.expand(7, -1))


@pytest.mark.parametrize("mixing", ["paper", "centred"])
def test_training_and_saving(tmp_path: Path, mixing: Mixing) -> None:
    world = small_world(tmp_path)
    config = world.config(method="hidden-mxd", num_experts=None, mixing=mixing)
    result = train_layer(config, world.data, world.database, world.language_model)
    run = Run.load("small", world.data)
    layer = run.layer
    assert isinstance(layer, HiddenMxD)
    assert (result.status, layer.config.mixing) == ("finished", mixing)
    learned = layer.mixing_bias_H if mixing == "paper" else layer.mixing_centre_M
    assert bool(learned.abs().sum() > 0)
    assert layer.scaling_NO.shape == (layer.config.num_experts, layer.config.hidden_width)
    card = (run.save_pretrained(tmp_path / "shared") / "README.md").read_text()
    assert ("a C plus a learned constant" in card) == (mixing == "paper")
    assert "| activation |" not in card
    world.database.dispose()
