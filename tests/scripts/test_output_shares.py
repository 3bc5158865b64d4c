"""Faithfulness on outputs: what freezing a part of a layer does to its errors, against definitions."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.mxd import MxD
from scripts.output_shares import decoder_cosines, errors
from tests.helpers.layers import random_layer_of


@torch.no_grad()
def test_experts_that_are_the_original_decoder_have_cosine_1_and_their_constant_mixing_has_no_error() -> None:
    layer = random_layer_of("mxd")
    assert isinstance(layer, MxD)
    random = decoder_cosines(layer, torch.randn(layer.decoder.weight.shape))
    assert 0 < random["median"] <= random["largest"] < 0.9
    layer.scaling_NO.fill_(0.3)
    original_OH = 2 * layer.decoder.weight
    assert decoder_cosines(layer, original_OH) == {"median": pytest.approx(1), "largest": pytest.approx(1)}
    x_TI = torch.randn(32, layer.config.input_width)
    target_TO = layer.encode(x_TI) @ original_OH.T
    found = errors(layer, MlpActivations(x_TI, target_TO), length=8)["normalized_mse"]
    assert len(found["constant"]) == 4
    assert max(found["constant"]) == pytest.approx(0, abs=1e-4)
    assert sum(found["mean"]) > 1
