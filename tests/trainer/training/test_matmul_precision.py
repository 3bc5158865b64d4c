"""Internal precision of matrix products during training."""

from __future__ import annotations

import pytest
import torch

from mxd.trainer.config import LayerConfig, OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.config.training import MatmulPrecision
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.layers.registry import build_layer
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
    layer = build_layer(
        LayerConfig(
            method="mxd",
            input_width=8,
            hidden_width=12,
            output_width=8,
            num_experts=16,
            k=4,
            activation="gelu",
            encoder="mlp",
        )
    )
    optimizer = OptimizerConfig(batch_tokens=32, matmul_precision=precision)
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        text=TextConfig(dataset="none"),
        tokens=64,
        init="random",
        optimizer=optimizer,
    )
    adamw = torch.optim.AdamW(layer.parameters(), lr=0.0)
    trainer = LayerTrainer(layer, adamw, config, 2, torch.zeros(16, dtype=torch.int64))
    seen: list[str] = []
    layer.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    trainer.train_step(MlpActivations(torch.randn(32, 8), torch.randn(32, 8)))
    assert seen == [precision]
