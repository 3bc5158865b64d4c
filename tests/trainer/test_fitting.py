"""A step that is taken on tensors without values never looked at one: nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from trainer.config import CollapseConfig, FittedMethod, LayerConfig, OptimizerConfig, TextConfig, TrainConfig
from trainer.fitting import Fit
from trainer.gate_config import FittedGate, GateConfig
from trainer.language_model import Capture
from trainer.layers.gates import blocks
from trainer.layers.registry import build_layer
from trainer.layers.sparse import Routing
from trainer.methods import WITH_RANK
from trainer.metrics import active_counts

TOKENS, WIDTH, EXPERTS, K = 64, 12, 40, 4


@pytest.fixture
def without_values() -> Iterator[None]:
    """Tensors that are made now have shapes alone; what has to know a value raises."""
    with FakeTensorMode():
        yield


def fit_of(
    method: FittedMethod, collapse: CollapseConfig, smallest_k: int | None = None, gate: FittedGate = "flat"
) -> Fit:
    everywhere = method == "relu-mxd"
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=WIDTH,
            hidden_width=20,
            output_width=WIDTH,
            num_experts=EXPERTS,
            k=EXPERTS if everywhere else K,
            activation="gelu",
            encoder="mlp",
            smallest_k=smallest_k,
            rank=3 if method in WITH_RANK else None,
            span=2 if method == "cross-layer-mxd" else None,
            gate=GateConfig(gate=gate),
        )
    )
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        text=TextConfig(text="none"),
        tokens=8 * TOKENS,
        method=method,
        start="paper",
        optimizer=OptimizerConfig(batch=TOKENS),
        collapse=collapse,
        smallest_k=smallest_k,
    )
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.0, fused=True)
    return Fit(layer, optimizer, config, 8, torch.zeros(EXPERTS, dtype=torch.int64))


@pytest.mark.usefixtures("without_values")
@pytest.mark.parametrize("collapse", [CollapseConfig(), CollapseConfig(k_spread=0.5, balance=0.1, diversity=0.1)])
@pytest.mark.parametrize("method", get_args(FittedMethod))
def test_no_step_waits_for_the_device(method: FittedMethod, collapse: CollapseConfig) -> None:
    if method == "molt" and collapse.diversity:
        pytest.skip("a molt has no rows that diversity could compare")
    fit = fit_of(method, collapse)
    for _ in range(2):
        fit.step(Capture(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert fit.taken == 2


@pytest.mark.usefixtures("without_values")
def test_a_step_of_several_k_waits_neither() -> None:
    fit = fit_of("mxd", CollapseConfig(), smallest_k=1)
    fit.step(Capture(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert fit.taken == 1


@pytest.mark.usefixtures("without_values")
@pytest.mark.parametrize("gate", ["product-key", "two-level"])
def test_no_step_waits_for_the_device_whatever_the_gate(gate: FittedGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_by_block", blocks._gathered)  # as where there is a device to wait for
    fit = fit_of("mxd", CollapseConfig(), gate=gate)
    for _ in range(2):
        fit.step(Capture(torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)))
    assert fit.taken == 2


@pytest.mark.usefixtures("without_values")
def test_what_waits_is_found() -> None:
    with pytest.raises(DynamicOutputShapeException):
        torch.randn(4).relu().nonzero()
    with pytest.raises(DataDependentOutputException):
        fit_of("mxd", CollapseConfig()).read()


def test_counts_are_of_active_experts_alone() -> None:
    routing = Routing(torch.tensor([[2.0, 0.0], [1.0, 0.5]]), torch.tensor([[3, 1], [3, 0]]))
    assert active_counts(routing, 5).tolist() == [1, 0, 0, 2, 0]
