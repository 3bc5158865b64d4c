"""Equal numbers of parameters, whatever the method."""

from __future__ import annotations

from typing import get_args

import pytest

from trainer.config import Encoder, FittedMethod, LayerConfig, Method
from trainer.gate_config import FLAT, GateConfig
from trainer.layers.matching import Widths, matched_num_experts
from trainer.layers.registry import build_layer
from trainer.methods import WITH_RANK

WIDTHS = Widths(inputs=24, hidden=40, outputs=24, rank=6)


def parameters(method: Method, encoder: Encoder, gate: GateConfig = FLAT) -> int:
    return build_layer(
        LayerConfig(
            method=method,
            input_width=24,
            hidden_width=40,
            output_width=24,
            num_experts=matched_num_experts(method, WIDTHS, encoder, gate),
            k=4,
            activation="silu",
            encoder=encoder,
            rank=6 if method in WITH_RANK else None,
            span=1 if method == "cross-layer-mxd" else None,
            gate=gate,
        )
    ).num_parameters


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", get_args(FittedMethod))
def test_all_methods_have_the_transcoders_parameters(method: Method, encoder: Encoder) -> None:
    wanted = parameters("transcoder", encoder) + (24 * 24 if method == "skip-transcoder" else 0)
    slack = 24 + 1 + 24
    if method == "molt":
        slack = 24 + 1 + 6 * (24 + 24)  # the largest transform
    if method in ("mxd", "relu-mxd", "batch-topk-mxd") and encoder == "mlp":
        slack = 32 * 24 + 1  # the paper's counts are off by so many
    assert abs(parameters(method, encoder) - wanted) <= slack


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", ["mxd", "transcoder", "skip-transcoder", "autoencoder", "low-rank-mxd"])
@pytest.mark.parametrize(
    "gate", [GateConfig(gate="product-key"), GateConfig(gate="two-level", groups=11, chosen_groups=2)]
)
def test_whatever_the_gate(method: FittedMethod, encoder: Encoder, gate: GateConfig) -> None:
    flat = parameters("transcoder", encoder) + (24 * 24 if method == "skip-transcoder" else 0)
    assert 0 <= flat - parameters(method, encoder, gate) <= 24 + 2 * 25


def test_what_product_keys_save_goes_into_more_experts() -> None:
    found = matched_num_experts("mxd", WIDTHS, "mlp", GateConfig(gate="product-key"))
    assert found > 1.8 * matched_num_experts("mxd", WIDTHS, "mlp")


@pytest.mark.parametrize(
    ("width", "hidden", "encoder", "experts"),
    [(768, 3072, "mlp", 21_490), (1024, 4096, "mlp", 28_658), (2048, 8192, "mlp", 57_330), (3072, 8192, "glu", 86_015)],
)
def test_the_papers_counts(width: int, hidden: int, encoder: Encoder, experts: int) -> None:
    widths = Widths(width, hidden, width, width // 4)
    assert matched_num_experts("mxd", widths, encoder) == experts
    assert matched_num_experts("transcoder", widths, encoder) == 32 * width
