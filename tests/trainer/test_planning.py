"""The formulas against layers and language models that are there, and against each other."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.layers import random_layer
from tests.processes import ROOT
from trainer.config import Encoder, FittedMethod, LayerConfig, Method
from trainer.gate_config import FLAT, GateConfig, GateForm
from trainer.layers.registry import build_layer
from trainer.methods import WITH_RANK
from trainer.planning import Devices, LanguageModelSizes, LayerSizes, Plan, plan

LARGE = LanguageModelSizes(8192, 28_672, 80, 128_256, 64, 8)
LAYER = LayerSizes(8192, 28_672, 8192, 219_136, 32, 2)


def planned(number: int) -> Plan:
    return plan(LARGE, 40, LAYER, Devices(number, 8, 989e12, 0.4, 450e9, 50e9), tokens_each=4096, context=128)


@pytest.mark.parametrize(("encoder", "readers"), [("mlp", 1), ("glu", 2)])
def test_parameters_are_those_of_the_layer(encoder: str, readers: int) -> None:
    layer = random_layer(encoder)  # type: ignore[arg-type]
    sizes = LayerSizes(12, 20, 10, 33, 5, readers)  # type: ignore[arg-type]
    assert sizes.parameters == layer.num_parameters
    tables = sum(layer.get_parameter(name).numel() for name in layer.expert_tables)
    assert sizes.table_parameters == tables


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", get_args(FittedMethod))
def test_parameters_of_every_method_are_those_of_its_layer(method: Method, encoder: Encoder) -> None:
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
        rank=3 if method in WITH_RANK else None,
        span=2 if method == "cross-layer-mxd" else None,
    )
    assert LayerSizes.of(config).parameters == build_layer(config).num_parameters


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("gate", ["product-key", "two-level", "cells"])
def test_parameters_and_arithmetic_of_every_gate(gate: GateForm, encoder: Encoder) -> None:
    layer = random_layer(encoder, num_experts=1000, gate=GateConfig(gate=gate))
    sizes, flat = (
        LayerSizes.of(random_layer(encoder, num_experts=1000, gate=it).config) for it in (layer.config.gate, FLAT)
    )
    assert sizes.parameters == layer.num_parameters
    looked_at = {"product-key": 32 + 32, "two-level": 32 + 8 * 32, "cells": 32 + 8 * 32}[gate]
    assert sizes.gate_flops == 2 * 12 * looked_at
    assert sizes.dense_flops == flat.dense_flops
    assert sizes.step_flops_per_token < flat.step_flops_per_token
    assert sizes.step_bytes_per_token(64) != flat.step_bytes_per_token(64)


def test_a_larger_batch_shares_the_optimisers_traffic() -> None:
    assert LAYER.step_bytes_per_token(4096) < LAYER.step_bytes_per_token(1024)


def test_a_language_model_of_70b_has_70b_parameters() -> None:
    assert LARGE.parameters == pytest.approx(70.55e9, rel=1e-3)
    assert LARGE.used_parameters(79) < LARGE.parameters


def test_more_devices_take_less_time_and_each_holds_as_much() -> None:
    few, many = planned(8), planned(64)
    assert many.tokens_per_second == pytest.approx(8 * few.tokens_per_second)
    assert many.bytes == few.bytes
    assert few.layer_network_seconds == 0 < many.layer_network_seconds


def test_the_step_of_gpt2_is_the_published_count() -> None:
    """232.6 GFLOP for 4,096 tokens, N = 21,490, K = 32: 96.6 of encoder and decoder, 135.2 of the gate."""
    step = 4096 * LayerSizes(768, 3072, 768, 21_490, 32, 1).step_flops_per_token
    assert step == pytest.approx(232.6e9, rel=5e-3)


def test_the_page_on_large_language_models_says_what_the_formulas_give() -> None:
    page = (ROOT / "docs" / "large-models.md").read_text("utf-8")
    few, many = planned(8), planned(64)
    read = LARGE.used_parameters(40)
    both = [(f"{it.bytes / 1e9:.0f} GB", it) for it in (few, many)]
    said = [
        f"| language model | {LARGE.parameters / 1e9:.1f} B | {2 * LARGE.parameters / 1e9:.0f} GB |",
        f"all that is read | {read / 1e9:.1f} B | {2 * read / 1e9:.0f} GB |",
        f"| layer | {LAYER.parameters / 1e9:.2f} B | {16 * LAYER.parameters / 1e9:.0f} GB with",
        f"can be spread | {LAYER.table_parameters / 1e9:.2f} B | {16 * LAYER.table_parameters / 1e9:.0f} GB |",
        f"on every GPU | {LAYER.dense_parameters / 1e9:.2f} B | {16 * LAYER.dense_parameters / 1e9:.0f} GB |",
        f"{LARGE.flops_per_token(40, 128) / 1e9:.1f} GFLOP for the language model",
        f"{LAYER.step_flops_per_token / 1e9:.1f} GFLOP for the sparse step (of it {LAYER.gate_flops / 1e9:.1f} for",
        "| **held by a GPU** | " + " | ".join(f"**{held}**" for held, _ in both) + " |",
        _row("arithmetic a step", [f"{it.seconds_per_step:.2f} s" for _, it in both]),
        _row("in the machine", [f"{it.language_model_link_seconds:.2f} s" for _, it in both]),
        _row("encoder's gradients, in the machine", [f"{it.layer_link_seconds:.2f} s" for _, it in both]),
        _row("averaging gradients between machines", ["none", f"{many.layer_network_seconds:.2f} s"]),
        _row("where traffic is hidden", [f"{round(it.tokens_per_second, -3):,.0f}" for _, it in both]),
        f"| **480M tokens** | **{few.hours(480e6):.1f} hours** | **{60 * many.hours(480e6):.0f} minutes** |",
    ]
    assert [line for line in said if line not in page] == []


def _row(ends: str, cells: list[str]) -> str:
    return f"{ends} | {' | '.join(cells)} |"
