"""Cost model formulas against actual layers and models."""

from __future__ import annotations

from typing import get_args

import pytest

from mxd.trainer.config import Encoder, LayerConfig, Method, TrainableMethod
from mxd.trainer.config.gates import FLAT, GateConfig, GateForm
from mxd.trainer.config.methods import method_traits
from mxd.trainer.layers.registry import build_layer
from mxd.trainer.training.planning.cost_model import Devices, LanguageModelSizes, LayerSizes, Plan, plan_cluster
from tests.helpers.layers import random_layer
from tests.helpers.processes import ROOT

LARGE = LanguageModelSizes(8192, 28_672, 80, 128_256, 64, 8)
LAYER = LayerSizes(8192, 28_672, 8192, 219_136, 32, 2)


def planned(number: int) -> Plan:
    return plan_cluster(
        LARGE, 40, LAYER, Devices(number, 8, 989e12, 0.4, 450e9, 50e9), tokens_per_device=4096, context=128
    )


@pytest.mark.parametrize(("encoder", "readers"), [("mlp", 1), ("glu", 2)])
def test_parameter_count_of_a_layer(encoder: str, readers: int) -> None:
    layer = random_layer(encoder)  # type: ignore[arg-type]
    sizes = LayerSizes(12, 20, 10, 33, 5, readers)  # type: ignore[arg-type]
    assert sizes.parameters == layer.num_parameters
    tables = sum(layer.get_parameter(name).numel() for name in layer.expert_tables)
    assert sizes.table_parameters == tables


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", (*get_args(TrainableMethod), "peer"))
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
    )
    assert LayerSizes.from_config(config).parameters == build_layer(config).num_parameters


def test_peer_scores_only_the_entries_of_its_heads() -> None:
    sizes = LayerSizes(768, 3072, 768, 10**6, 32, 1, "peer")
    assert (
        sizes.gate_flops == 4 * LayerSizes(768, 3072, 768, 10**6, 32, 1, gate=GateConfig(gate="product-key")).gate_flops
    )
    assert sizes.gate_flops == sum(product.flops_per_token for product in sizes.gate_sizes.products(64))


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
    assert LAYER.step_bytes_per_token(4096) < LAYER.step_bytes_per_token(1024)


def test_parameter_count_of_a_70b_model() -> None:
    assert LARGE.parameters == pytest.approx(70.55e9, rel=1e-3)
    assert LARGE.used_parameters(79) < LARGE.parameters


def test_more_devices_take_less_time_with_the_same_memory_each() -> None:
    few, many = planned(8), planned(64)
    assert many.tokens_per_second == pytest.approx(8 * few.tokens_per_second)
    assert many.bytes == few.bytes
    assert few.layer_network_seconds == 0 < many.layer_network_seconds


def test_flops_of_a_gpt2_step() -> None:
    """232.6 GFLOPs for 4,096 tokens, N = 21,490, K = 32: 96.6 for encoder and decoder, 135.2 for the gate."""
    step = 4096 * LayerSizes(768, 3072, 768, 21_490, 32, 1).step_flops_per_token
    assert step == pytest.approx(232.6e9, rel=5e-3)


def test_the_page_on_large_models_agrees_with_the_formulas() -> None:
    page = (ROOT / "docs" / "large-models.md").read_text("utf-8")
    few, many = planned(8), planned(64)
    used = LARGE.used_parameters(40)
    plans = (few, many)
    lines = [
        f"| language model | {LARGE.parameters / 1e9:.1f} B | {2 * LARGE.parameters / 1e9:.0f} GB |",
        f"all that is read | {used / 1e9:.1f} B | {2 * used / 1e9:.0f} GB |",
        f"| layer | {LAYER.parameters / 1e9:.2f} B | {16 * LAYER.parameters / 1e9:.0f} GB with",
        f"can be sharded | {LAYER.table_parameters / 1e9:.2f} B | {16 * LAYER.table_parameters / 1e9:.0f} GB |",
        f"on every GPU | {LAYER.dense_parameters / 1e9:.2f} B | {16 * LAYER.dense_parameters / 1e9:.0f} GB |",
        f"{LARGE.flops_per_token(40, 128) / 1e9:.1f} GFLOP for the language model",
        f"{LAYER.step_flops_per_token / 1e9:.1f} GFLOP for the sparse step, of which {LAYER.gate_flops / 1e9:.1f} for",
        "| **memory per GPU** | " + " | ".join(f"**{one.bytes / 1e9:.0f} GB**" for one in plans) + " |",
        _row("compute per step", [f"{one.seconds_per_step:.2f} s" for one in plans]),
        _row("weights, within the machine", [f"{one.language_model_link_seconds:.2f} s" for one in plans]),
        _row("encoder gradients, within the machine", [f"{one.layer_link_seconds:.2f} s" for one in plans]),
        _row("averaging gradients between machines", ["none", f"{many.layer_network_seconds:.2f} s"]),
        _row("with communication overlapped", [f"{round(one.tokens_per_second, -3):,.0f}" for one in plans]),
        f"| **480M tokens** | **{few.hours(480e6):.1f} hours** | **{60 * many.hours(480e6):.0f} minutes** |",
    ]
    assert [line for line in lines if line not in page] == []


def _row(ends: str, cells: list[str]) -> str:
    return f"{ends} | {' | '.join(cells)} |"
