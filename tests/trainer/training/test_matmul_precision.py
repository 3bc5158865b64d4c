"""Internal precision of matrix products during training."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from mxd.trainer.config import LayerConfig, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.config.gates import GateConfig
from mxd.trainer.config.methods import Method, TrainableMethod, method_traits
from mxd.trainer.config.training import MatmulPrecision
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training import matmul_precision as precisions
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.matmul_precision import matmul_precision


def test_the_precision_holds_inside_and_is_restored_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(ZeroDivisionError), matmul_precision("medium"):
        assert torch.get_float32_matmul_precision() == "medium"
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_a_training_step_uses_the_precision_of_its_run(precision: MatmulPrecision) -> None:
    trainer = _trainer("mxd", GateConfig(), precision)
    seen: list[str] = []
    trainer.layer.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    trainer.train_step(_batch())
    assert seen == [precision]


@pytest.mark.parametrize(
    ("precision", "width", "dtype"),
    [
        ("auto", 512, torch.bfloat16),
        ("auto", 511, torch.float32),
        ("medium", 8, torch.bfloat16),
        ("highest", 512, torch.float32),
        ("high", 512, torch.float32),
    ],
)
def test_wide_layers_use_bfloat16_products_only_on_cpus_with_units(
    precision: MatmulPrecision, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda: True)
    assert precisions.product_dtype(precision, torch.device("cpu"), width) == dtype
    assert precisions.product_dtype(precision, torch.device("cuda"), width) == torch.float32
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda: False)
    assert precisions.product_dtype(precision, torch.device("cpu"), width) == torch.float32


@pytest.mark.parametrize("method", get_args(TrainableMethod))
def test_bfloat16_products_train_every_method_in_float32_up_to_rounding(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda: True)
    exact, rounded = _trainer(method, GateConfig(), "highest"), _trainer(method, GateConfig(), "medium")
    expected, output = exact.train_step(_batch()), rounded.train_step(_batch())
    assert output.output_TO.dtype == torch.float32
    difference = (output.output_TO - expected.output_TO).abs().max()
    assert 0 < difference < 0.05 * expected.output_TO.abs().max()
    assert all(parameter.dtype == torch.float32 for parameter in rounded.layer.parameters())


@pytest.mark.parametrize("gate", [GateConfig(gate="product-key"), GateConfig(gate="two-level", groups=4, top_groups=2)])
def test_sparse_gates_stay_in_float32(gate: GateConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda: True)
    exact, same = _trainer("mxd", gate, "highest"), _trainer("mxd", gate, "medium")
    assert torch.equal(exact.train_step(_batch()).output_TO, same.train_step(_batch()).output_TO)


def _batch() -> MlpActivations:
    generator = torch.Generator().manual_seed(1)
    return MlpActivations(torch.randn(32, 8, generator=generator), torch.randn(32, 8, generator=generator))


def _trainer(method: Method, gate: GateConfig, precision: MatmulPrecision) -> LayerTrainer:
    torch.manual_seed(0)
    traits = method_traits(method)
    layer = build_layer(
        LayerConfig(
            method=method,
            input_width=8,
            hidden_width=12,
            output_width=8,
            num_experts=16,
            k=4,
            activation="gelu",
            encoder="mlp",
            rank=4 if traits.rank else None,
            mixing=traits.mixing,
            gate=gate,
        )
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # no zero decoder, so that the products show in the output
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        method=method,
        text=TextConfig(dataset="none"),
        tokens=64,
        optimizer=OptimizerConfig(batch_tokens=32, matmul_precision=precision),
    )
    adamw = torch.optim.AdamW(layer.parameters(), lr=0.0)
    return LayerTrainer(layer, adamw, config, 2, torch.zeros(16, dtype=torch.int64))
