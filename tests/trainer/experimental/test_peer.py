"""PEER against a dense reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mxd.trainer.analysis.circuits.tracing import traced_ids
from mxd.trainer.config.analysis import TargetConfig
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.peer import HEADS, Peer
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.gates.product_key import ProductKeyGate
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer_of
from tests.helpers.runs import small_world


def layer_of(k: int = 8) -> Peer:
    layer = random_layer_of("peer", k=k)
    assert isinstance(layer, Peer)
    return layer


def explicit(layer: Peer, x_TI: Tensor, each: int) -> Tensor:
    """Gate activations of all experts, [T, N]: every head scores all experts and applies softmax to its largest."""
    neurons_TN = (x_TI @ layer.gate.get_parameter("weight").T + layer.gate.get_parameter("bias")).relu()
    summed_TN = torch.zeros_like(neurons_TN)
    for head in layer.heads:
        assert isinstance(head, ProductKeyGate)
        pairs_TAB = head.first(x_TI).unsqueeze(2) + head.second(x_TI).unsqueeze(1)
        scores_TN = pairs_TAB.flatten(1)[:, : layer.config.num_experts]
        values, places = scores_TN.topk(each, dim=1)
        summed_TN = summed_TN.scatter_add(1, places, values.relu().softmax(dim=1))
    return summed_TN * neurons_TN


def dense(routing: Routing, num_experts: int) -> Tensor:
    shape = len(routing.coefficients_TK), num_experts
    return torch.zeros(shape).scatter_add(1, routing.indices_TK, routing.coefficients_TK)


@pytest.mark.parametrize(("k", "each"), [(8, 2), (32, 8)])
def test_matches_the_dense_reference(k: int, each: int) -> None:
    layer, x_TI = layer_of(k), torch.randn(50, 12)
    expected_TN = explicit(layer, x_TI, each)
    routing = layer.route(x_TI)
    torch.testing.assert_close(dense(routing, 33), expected_TN, atol=1e-4, rtol=1e-4)
    output_TO = expected_TN @ layer.direction_NO + layer.output_bias
    torch.testing.assert_close(layer(x_TI).output_TO, output_TO, atol=1e-4, rtol=1e-4)


def test_experts_selected_by_several_heads_are_merged_and_sorted() -> None:
    layer, x_TI = layer_of(32), torch.randn(50, 12)  # four heads choose 8 of 33 experts each: some are chosen twice
    coefficients_TK, indices_TK = layer.route(x_TI)
    for values_K, ids_K in zip(coefficients_TK, indices_TK, strict=True):
        active = ids_K[values_K > 0].tolist()
        assert len(active) == len(set(active)) < 32
        assert torch.equal(values_K, values_K.sort(descending=True).values)
    assert (coefficients_TK >= 0).all()


def test_uneven_k_keeps_the_strongest() -> None:
    layer, x_TI = layer_of(5), torch.randn(50, 12)
    routing = layer.route(x_TI)
    assert routing.indices_TK.shape == (50, 5)
    all_TN = explicit(layer, x_TI, each=-(-5 // HEADS))
    torch.testing.assert_close(routing.coefficients_TK, all_TN.topk(5, dim=1).values, atol=1e-4, rtol=1e-4)


def test_gradients_match_the_dense_reference() -> None:
    layer, x_TI = layer_of(), torch.randn(50, 12)
    target_TO = torch.randn(50, 10)
    (layer(x_TI).output_TO - target_TO).square().sum().backward()
    actual = {name: it.grad.clone() for name, it in layer.named_parameters() if it.grad is not None}
    layer.zero_grad()
    output_TO = explicit(layer, x_TI, each=2) @ layer.direction_NO + layer.output_bias
    (output_TO - target_TO).square().sum().backward()
    assert actual.keys() == dict(layer.named_parameters()).keys()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        scale = parameter.grad.abs().max().item()
        assert scale > 0
        torch.testing.assert_close(actual[name], parameter.grad, atol=1e-5 * scale, rtol=1e-3, msg=name)


def test_peer_learns_a_target_of_single_neurons() -> None:
    x_TI = torch.randn(512, 12)
    with torch.no_grad():
        target_TO = layer_of()(x_TI).output_TO
    learner = Peer(layer_of().config)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    errors = []
    for _ in range(150):
        error = (learner(x_TI).output_TO - target_TO).square().sum() / (target_TO - target_TO.mean(0)).square().sum()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert errors[-1] < 0.5 < 0.9 < errors[0]


def test_training_saving_and_unsupported_settings(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    config = world.config(method="peer", tokens=4 * 24 * 64)
    result = train_layer(config, world.data, world.database, world.language_model)
    assert result.status == "finished"
    assert result.dead_share < 0.5
    run = Run.load("small", world.data)
    layer = load_layer(run.folder)
    assert isinstance(layer, Peer)
    with pytest.raises(UserError, match="has no top-k"):
        layer.at_k(2)
    with pytest.raises(UserError, match="Circuits are not supported for small"):
        traced_ids(world.language_model, [run], TargetConfig(prompt="the fox"))
    world.database.dispose()
