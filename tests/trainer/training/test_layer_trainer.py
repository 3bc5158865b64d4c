"""Training steps run on fake tensors, which have no values, so they never synchronise with the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from mxd.trainer.config import (
    LayerConfig,
    OptimizerConfig,
    RegularizationConfig,
    TextConfig,
    TrainConfig,
)
from mxd.trainer.config.methods import Method, method_traits, methods
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.base import Routing
from mxd.trainer.layers.metrics import active_counts
from mxd.trainer.layers.mxd import MxD, spatial_median
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.layer_trainer import LayerTrainer

TOKENS, WIDTH, EXPERTS, K = 64, 12, 40, 4


@pytest.fixture
def without_values() -> Iterator[None]:
    """Replace new tensors by fake ones, which raise an error if a value is read."""
    with FakeTensorMode():
        yield


def small_trainer(method: Method, settings: RegularizationConfig, min_k: int | None = None) -> LayerTrainer:
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=WIDTH,
            hidden_width=20,
            output_width=WIDTH,
            num_experts=EXPERTS,
            k=K,
            activation="gelu",
            encoder="mlp",
            min_k=min_k,
            rank=3 if method_traits(method).rank else None,
            mixing=method_traits(method).mixing,
        )
    )
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        text=TextConfig(dataset="none"),
        tokens=8 * TOKENS,
        method=method,
        init="random",
        optimizer=OptimizerConfig(batch_tokens=TOKENS),
        regularization=settings,
        min_k=min_k,
    )
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0, fused=True)
    return LayerTrainer(layer, optimizer, config, 8, torch.zeros(EXPERTS, dtype=torch.int64))


@pytest.mark.usefixtures("without_values")
@pytest.mark.parametrize(
    "settings",
    [RegularizationConfig(), RegularizationConfig(k_spread=0.5, load_balance_weight=0.1)],
)
@pytest.mark.parametrize("method", methods("core"))
def test_a_step_does_not_synchronise_with_the_device(method: Method, settings: RegularizationConfig) -> None:
    trainer = small_trainer(method, settings)
    for _ in range(2):
        trainer.train_step(MlpActivations(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert trainer.step == 2


@pytest.mark.usefixtures("without_values")
def test_a_matryoshka_step_does_not_synchronise() -> None:
    trainer = small_trainer("mxd", RegularizationConfig(), min_k=1)
    trainer.train_step(MlpActivations(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert trainer.step == 1


@pytest.mark.usefixtures("without_values")
def test_fake_tensors_detect_synchronisation() -> None:
    with pytest.raises(DynamicOutputShapeException):
        torch.randn(4).relu().nonzero()
    with pytest.raises(DataDependentOutputException):
        small_trainer("mxd", RegularizationConfig()).pop_metrics()


def test_inactive_experts_are_not_counted() -> None:
    routing = Routing(torch.tensor([[2.0, 0.0], [1.0, 0.5]]), torch.tensor([[3, 1], [3, 0]]))
    assert active_counts(routing, 5).tolist() == [1, 0, 0, 2, 0]


def test_the_running_centre_is_that_of_the_steps_own_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mixing is computed once per step; the first step's centre is its spatial median."""
    trainer = small_trainer("mxd", RegularizationConfig())
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
    dense_TN = torch.zeros(TOKENS, EXPERTS).scatter(1, output.routing.indices_TK, output.routing.coefficients_TK)
    torch.testing.assert_close(output.mixing_TM, dense_TN @ table_NO)
    centre_M = spatial_median(dense_TN @ table_NO, torch.zeros(WIDTH))
    torch.testing.assert_close(trainer.layer.mixing_centre_M, centre_M)
