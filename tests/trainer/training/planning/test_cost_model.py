"""Cost model formulas against actual layers and models."""

from __future__ import annotations

from typing import get_args

import pytest

from mxd.trainer.config import Encoder, LayerConfig, Method, TrainableMethod
from mxd.trainer.config.gates import FLAT, GateConfig, GateForm
from mxd.trainer.config.methods import method_traits
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.planning.cost_model import LayerSizes
from tests.helpers.layers import random_layer


@pytest.mark.parametrize(("encoder", "readers"), [("mlp", 1), ("glu", 2)])
def test_parameter_count_of_a_layer(encoder: str, readers: int) -> None:
    layer = random_layer(encoder)  # type: ignore[arg-type]
    sizes = LayerSizes(12, 20, 10, 33, 5, readers)  # type: ignore[arg-type]
    assert sizes.parameters == layer.num_parameters
    tables = sum(layer.get_parameter(name).numel() for name in layer.expert_tables)
    assert sizes.table_parameters == tables


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", (*get_args(TrainableMethod), "hidden-mxd"))
def test_parameter_count_of_every_method(method: Method, encoder: Encoder) -> None:
    autoencoder = method == "autoencoder"
    config = LayerConfig(
        method=method,
        input_width=10 if autoencoder else 12,
        hidden_width=20,
        output_width=10,
        num_experts=33,
        k=33 if method == "relu-mxd" else 5,
        activation="silu",
        encoder=encoder,
        rank=3 if method_traits(method).rank else None,
        mixing=method_traits(method).mixing,
    )
    assert LayerSizes.from_config(config).parameters == build_layer(config).num_parameters


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("gate", ["product-key", "two-level"])
def test_parameters_and_flops_of_every_gate(gate: GateForm, encoder: Encoder) -> None:
    layer = random_layer(encoder, num_experts=1000, gate=GateConfig(gate=gate))
    sizes, flat = (
        LayerSizes.from_config(random_layer(encoder, num_experts=1000, gate=it).config)
        for it in (layer.config.gate, FLAT)
    )
    assert sizes.parameters == layer.num_parameters
    looked_at = {"product-key": 32 + 32, "two-level": 32 + 8 * 32}[gate]
    assert sizes.gate_flops == 2 * 12 * looked_at
    assert sizes.dense_flops == flat.dense_flops
    assert sizes.step_flops_per_token < flat.step_flops_per_token
    assert sizes.step_bytes_per_token(64) != flat.step_bytes_per_token(64)


def test_larger_batches_amortise_the_optimizer() -> None:
    sizes = LayerSizes(8192, 28_672, 8192, 219_136, 32, 2)
    assert sizes.step_bytes_per_token(4096) < sizes.step_bytes_per_token(1024)


def test_flops_of_a_gpt2_step() -> None:
    """232.6 GFLOPs for 4,096 tokens, N = 21,490, K = 32: 96.6 for encoder and decoder, 135.2 for the gate."""
    step = 4096 * LayerSizes(768, 3072, 768, 21_490, 32, 1).step_flops_per_token
    assert step == pytest.approx(232.6e9, rel=5e-3)
