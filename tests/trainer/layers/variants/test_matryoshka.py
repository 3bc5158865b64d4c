"""Matryoshka-K: joint training at several K, and use with fewer experts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.config import Method
from mxd.trainer.errors import UserError
from mxd.trainer.inference.routing import route
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.metrics import normalized_mse
from mxd.trainer.layers.variants.matryoshka import nested_ks, nested_outputs
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import random_layer, random_layer_of
from tests.helpers.runs import small_world

WITH_TOP_K: tuple[Method, ...] = (
    "mxd",
    "transcoder",
    "skip-transcoder",
    "autoencoder",
    "low-rank-mxd",
    "tensor-ring-mxd",
    "hidden-mxd",
    "molt",
)


@pytest.mark.parametrize(
    ("k", "smallest", "expected"),
    [(16, 2, (2, 4, 8, 16)), (12, 4, (4, 6, 12)), (12, 5, (5, 6, 12)), (4, 4, (4,)), (5, 1, (1, 2, 5))],
)
def test_halves_down_to_the_smallest(k: int, smallest: int, expected: tuple[int, ...]) -> None:
    assert nested_ks(k, smallest) == expected


@pytest.mark.parametrize("method", WITH_TOP_K)
def test_each_output_matches_the_layer_with_that_k(method: Method) -> None:
    layer, x_TI = random_layer_of(method), torch.randn(9, 10 if method == "autoencoder" else 12)
    actual = nested_outputs(layer, x_TI, (1, 2, 5))
    for k, output_TO in zip((1, 2, 5), actual.outputs, strict=True):
        torch.testing.assert_close(output_TO, layer.at_k(k)(x_TI).output_TO, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(actual.full.output_TO, layer(x_TI).output_TO, atol=1e-4, rtol=1e-4)


def test_gradients_match_those_of_separate_errors() -> None:
    layer, x_TI, target_TO = random_layer(), torch.randn(9, 12), torch.randn(9, 10)
    outputs = nested_outputs(layer, x_TI, (2, 5)).outputs
    torch.stack([normalized_mse(output_TO, target_TO) for output_TO in outputs]).sum().backward()
    together = {name: parameter.grad for name, parameter in layer.named_parameters()}
    layer.zero_grad()
    for k in (2, 5):
        normalized_mse(layer.at_k(k)(x_TI).output_TO, target_TO).backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(together[name], parameter.grad, atol=1e-4, rtol=1e-4)


def test_a_layer_with_fewer_experts_has_the_same_weights() -> None:
    layer, x_TI = random_layer(), torch.randn(3, 12)
    narrow = layer.at_k(2)
    assert (narrow.config.k, layer.config.k) == (2, 5)
    assert layer.at_k(2) is narrow
    assert layer.at_k(5) is layer
    assert (narrow.route(x_TI).coefficients_TK > 0).sum(1).max() <= 2
    layer.get_parameter("output_bias").data += 1
    layer.to(torch.float64)
    assert narrow(x_TI.double()).output_TO.dtype == torch.float64
    torch.testing.assert_close(
        narrow(x_TI.double()).output_TO,
        layer.decode(layer.dense_output(x_TI.double()), narrow.route(x_TI.double())),
    )
    assert list(layer.state_dict()) == list(narrow.state_dict())


def test_invalid_k_is_rejected() -> None:
    with pytest.raises(UserError, match="k=6 exceeds the layer's K=5"):
        random_layer().at_k(6)
    methods: tuple[Method, ...] = ("relu-mxd", "batch-topk-mxd")
    for method in methods:
        with pytest.raises(UserError, match=f"A {method} has no top-k"):
            random_layer_of(method).at_k(2)


@pytest.mark.parametrize("seed", range(3))
def test_training_at_several_k_improves_small_k(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_TI = torch.randn(256, 16, generator=generator)
    target_TO = torch.tanh(x_TI @ torch.randn(16, 16, generator=generator))
    alone, nested = (random_layer(widths=(16, 20, 16), seed=seed) for _ in range(2))
    for layer, ks in ((alone, (layer_k(alone),)), (nested, nested_ks(layer_k(nested), 1))):
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        for _ in range(150):
            optimizer.zero_grad()
            answers = nested_outputs(layer, x_TI, ks).outputs
            torch.stack([normalized_mse(output_TO, target_TO) for output_TO in answers]).mean().backward()
            optimizer.step()
    errors = [normalized_mse(layer.at_k(1)(x_TI).output_TO, target_TO).item() for layer in (alone, nested)]
    assert errors[1] < 0.8 * errors[0]


def layer_k(layer: SparseLayer) -> int:
    return layer.config.k


def test_a_run_stores_its_smallest_k(tmp_path: Path) -> None:
    world = small_world(tmp_path)
    train_layer(world.config("nested", k=8, min_k=1), world.data, world.database, world.language_model)
    run = Run.load("nested", world.data)
    assert run.layer_config.min_k == 1
    assert max(len(token.experts) for token in route(world.language_model, run, "the old fox", k=3).tokens) == 3
