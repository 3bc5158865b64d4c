"""Parameter matching of all methods."""

from __future__ import annotations

import pytest

from mxd.trainer.config import Encoder, LayerConfig, Method
from mxd.trainer.config.layer import method_traits, methods
from mxd.trainer.layers.registry import build_layer, matched_num_experts


def matched_config(method: Method, encoder: Encoder, widths: tuple[int, int, int] = (24, 40, 24)) -> LayerConfig:
    config = LayerConfig(
        method=method,
        input_width=widths[0],
        hidden_width=widths[1],
        output_width=widths[2],
        num_experts=1,
        k=4,
        activation="silu",
        encoder=encoder,
        rank=6 if method_traits(method).rank else None,
    )
    return config.model_copy(update={"num_experts": matched_num_experts(config, widths[0])})


def parameters(method: Method, encoder: Encoder) -> int:
    return build_layer(matched_config(method, encoder)).num_parameters


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("method", methods("core", "experimental"))
def test_all_methods_match_the_transcoders_parameters(method: Method, encoder: Encoder) -> None:
    expected = parameters("transcoder", encoder) + (24 * 24 if method == "skip-transcoder" else 0)
    slack = 24 + 1 + 24
    if method == "molt":
        slack = 24 + 1 + 6 * (24 + 24)  # the largest transform
    if method in ("mxd", "batch-topk-mxd") and encoder == "mlp":
        slack = 32 * 24 + 1  # the paper's counts are off by so many
    assert abs(parameters(method, encoder) - expected) <= slack


@pytest.mark.parametrize(
    ("width", "hidden", "encoder", "experts"),
    [(768, 3072, "mlp", 21_490), (1024, 4096, "mlp", 28_658), (2048, 8192, "mlp", 57_330), (3072, 8192, "glu", 86_015)],
)
def test_the_papers_counts(width: int, hidden: int, encoder: Encoder, experts: int) -> None:
    widths = width, hidden, width
    assert matched_config("mxd", encoder, widths=widths).num_experts == experts
    assert matched_config("transcoder", encoder, widths=widths).num_experts == 32 * width
