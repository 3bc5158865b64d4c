"""Transcoders with thresholds: active features, contributions, saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.registry import build_layer, load_layer
from mxd.trainer.layers.variants.dense_gate import FixedThresholds

METHODS: tuple[Method, ...] = ("jumprelu-transcoder", "jumprelu-skip-transcoder")


def layer_of(method: Method) -> FixedThresholds:
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=12,
            hidden_width=20,
            output_width=10,
            num_experts=33,
            k=33,
            activation="gelu",
            encoder="mlp",
        )
    )
    assert isinstance(layer, FixedThresholds)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    layer.threshold_N.uniform_(0, 1)
    return layer


@pytest.mark.parametrize("method", METHODS)
def test_features_above_their_threshold_are_active(method: Method) -> None:
    layer, x_TI = layer_of(method), torch.randn(50, 12)
    scores_TN = layer.gate(x_TI)
    routing = layer.route(x_TI)
    active_TN = scores_TN > layer.threshold_N
    assert 0.05 < active_TN.float().mean() < 0.6
    assert torch.equal(routing.coefficients_TK, torch.where(active_TN, scores_TN, 0))
    layer.threshold_N.zero_()
    assert torch.equal(layer.route(x_TI).coefficients_TK, scores_TN.relu())


@pytest.mark.parametrize("method", METHODS)
def test_contributions_add_up(method: Method) -> None:
    layer, x_TI = layer_of(method), torch.randn(7, 12)
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    singles = [Routing(c[:, None], i[:, None]) for c, i in zip(*(value.T for value in routing), strict=True)]
    summed = torch.stack([layer.contribution(dense_TM, single) for single in singles]).sum(dim=0)
    nothing = Routing(torch.zeros(7, 33), routing.indices_TK)
    assert torch.allclose(summed + layer.decode(dense_TM, nothing), layer(x_TI).output_TO, atol=1e-4)
    norms = torch.stack([layer.contribution(dense_TM, single).norm(dim=1) for single in singles], dim=1)
    assert torch.allclose(norms, layer.contribution_norms(dense_TM, routing), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_layer_has_its_thresholds(tmp_path: Path, method: Method) -> None:
    layer, x_TI = layer_of(method), torch.randn(7, 12)
    layer.save(tmp_path)
    assert torch.allclose(load_layer(tmp_path)(x_TI).output_TO, layer(x_TI).output_TO)
