"""Training of one layer: steps, metrics, regularisation, and joint training at several K."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from mxd.trainer.config import RegularizationConfig
from mxd.trainer.config.layer import Method, methods
from mxd.trainer.errors import UserError
from mxd.trainer.inference.routing import route
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.base import Routing, SparseLayer, normalized_mse
from mxd.trainer.layers.mxd import MxD, spatial_median
from mxd.trainer.storage.run import Run
from mxd.trainer.training.layer_trainer import (
    LayerTrainer,
    build_layer_config,
    load_imbalance,
    nested_ks,
    nested_outputs,
    sample_k,
)
from mxd.trainer.training.train import train_layer
from tests.helpers.layers import EXPERTS, TOKENS, WIDTH, layer_trainer, random_layer, random_layer_of
from tests.helpers.runs import World, small_world


@pytest.fixture
def without_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace new tensors by fake ones, which raise an error if a value is read."""
    monkeypatch.setattr("mxd.trainer.training.layer_trainer.release_pages", lambda _tensor: None)  # they have none
    with FakeTensorMode():
        yield


@pytest.mark.usefixtures("without_values")
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param(method, settings, id=f"{method}-{name}")
        for method in methods("core")
        for name, settings in {
            "plain": {},
            "regularised": {"regularization": RegularizationConfig(k_spread=0.5, load_balance_weight=0.1)},
            "matryoshka": {"min_k": 1},
        }.items()
        if (method, name) != ("batch-topk-mxd", "matryoshka")  # has no top-k
    ],
)
def test_a_step_does_not_synchronise_with_the_device(method: Method, settings: dict[str, Any]) -> None:
    trainer = layer_trainer(method, **settings)
    for _ in range(2):
        trainer.train_step(MlpActivations(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert trainer.step == 2


def test_the_running_centre_is_that_of_the_steps_own_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mixing is computed once per step; the first step's centre is its spatial median."""
    trainer = layer_trainer()
    assert isinstance(trainer.layer, MxD)
    calls: list[Routing] = []
    mixing = type(trainer.layer).mixing

    def counted(layer: MxD, routing: Routing) -> Tensor:
        calls.append(routing)
        return mixing(layer, routing)

    monkeypatch.setattr(type(trainer.layer), "mixing", counted)
    table_NO = trainer.layer.scaling_NO.detach().clone()
    output = trainer.train_step(MlpActivations(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert len(calls) == 1
    dense_TN = torch.zeros(TOKENS, EXPERTS).scatter(1, output.routing.indices_TK, output.routing.activations_TK)
    torch.testing.assert_close(output.mixing_TM, dense_TN @ table_NO)
    centre_M = spatial_median(dense_TN @ table_NO, torch.zeros(WIDTH))
    torch.testing.assert_close(trainer.layer.mixing_centre_M, centre_M)


def routing_of(indices: list[list[int]]) -> Routing:
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def test_load_imbalance_is_1_if_balanced_and_n_for_a_single_expert() -> None:
    assert load_imbalance(routing_of([[0, 1], [2, 3]]), 4) == pytest.approx(1)
    assert load_imbalance(routing_of([[2], [2]]), 4) == pytest.approx(4)


def test_the_loss_reaches_the_gate_and_is_absent_by_default(world: World) -> None:
    x_TI = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    for weight in (0.0, 1.0):
        config = world.config(init="random", regularization=RegularizationConfig(load_balance_weight=weight))
        trainer = LayerTrainer.create(config, world.language_model, total_steps=4)
        loss = trainer.auxiliary_loss(trainer.layer(x_TI), x_TI)
        assert (loss is None) == (weight == 0)
    assert loss is not None
    loss.backward()
    gate_gradient = trainer.layer.get_parameter("gate.weight").grad
    assert gate_gradient is not None and gate_gradient.any()


def test_random_k_depends_only_on_seed_and_step(world: World) -> None:
    config = world.config(regularization=RegularizationConfig(k_spread=0.5))
    drawn = [sample_k(config, 4, step) for step in range(400)]
    assert set(drawn) == {2, 3, 4, 5, 6}
    assert drawn == [sample_k(config, 4, step) for step in range(400)]
    layer = random_layer(num_experts=40, k=4)
    x_TI = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    assert layer(x_TI, drawn[0]).routing.indices_TK.shape == (8, drawn[0])
    assert {sample_k(world.config(), 4, step) for step in range(50)} == {4}


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
    full, outputs = nested_outputs(layer, x_TI, (1, 2, 5))
    for k, output_TO in zip((1, 2, 5), outputs, strict=True):
        torch.testing.assert_close(output_TO, layer.at_k(k)(x_TI).output_TO, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(full.output_TO, layer(x_TI).output_TO, atol=1e-4, rtol=1e-4)


def test_gradients_match_those_of_separate_errors() -> None:
    layer, x_TI, target_TO = random_layer(), torch.randn(9, 12), torch.randn(9, 10)
    outputs = nested_outputs(layer, x_TI, (2, 5))[1]
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
    assert (narrow.route(x_TI).activations_TK > 0).sum(1).max() <= 2
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
    with pytest.raises(UserError, match=r"k=0 activates no expert\. Choose at least 1\."):
        random_layer().at_k(0)
    methods: tuple[Method, ...] = ("relu-mxd", "batch-topk-mxd")
    for method in methods:
        with pytest.raises(UserError, match=f"A {method} has no top-k"):
            random_layer_of(method).at_k(2)


@pytest.mark.parametrize(
    ("flag", "changes"),
    [
        ("--k-spread", {"method": "batch-topk-mxd", "regularization": RegularizationConfig(k_spread=0.5)}),
        ("--min-k", {"method": "batch-topk-mxd", "min_k": 1}),
        ("--min-k", {"min_k": 2, "regularization": RegularizationConfig(k_spread=0.5)}),
        ("--min-k", {"k": 4, "min_k": 5}),
        ("--rank", {"rank": 2}),
        ("--mixing", {"method": "transcoder", "mixing": "centred"}),
    ],
)
def test_settings_without_effect_or_in_contradiction_are_rejected(
    world: World, flag: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=flag):
        build_layer_config(world.config(**changes), world.language_model.architecture)


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
            answers = nested_outputs(layer, x_TI, ks)[1]
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
