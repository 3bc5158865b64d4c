"""Cost model formulas against actual layers and models."""

from __future__ import annotations

import pytest

from mxd.trainer.config import Encoder, LayerConfig, Method
from mxd.trainer.config.methods import method_traits, methods
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
@pytest.mark.parametrize("method", methods("core", "experimental"))
def test_parameter_count_of_every_method(method: Method, encoder: Encoder) -> None:
    autoencoder = method == "autoencoder"
    config = LayerConfig(
        method=method,
        input_width=10 if autoencoder else 12,
        hidden_width=20,
        output_width=10,
        num_experts=33,
        k=5,
        activation="silu",
        encoder=encoder,
        rank=3 if method_traits(method).rank else None,
        mixing=method_traits(method).mixing,
    )
    assert LayerSizes.from_config(config).parameters == build_layer(config).num_parameters


def test_larger_batches_amortise_the_optimizer() -> None:
    sizes = LayerSizes(8192, 28_672, 8192, 219_136, 32, 2)
    assert sizes.step_bytes_per_token(4096) < sizes.step_bytes_per_token(1024)


def test_flops_of_a_gpt2_step() -> None:
    """232.6 GFLOPs for 4,096 tokens, N = 21,490, K = 32: 96.6 for encoder and decoder, 135.2 for the gate."""
    step = 4096 * LayerSizes(768, 3072, 768, 21_490, 32, 1).step_flops_per_token
    assert step == pytest.approx(232.6e9, rel=5e-3)
