"""Transcoders against the paper's code, and the shared layer interface."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import build_layer

REFERENCE = Path(__file__).parents[2] / "reference"
CASES: list[tuple[str, Method]] = [
    ("transcoder_topk", "transcoder"),
    ("skip_transcoder_topk", "skip-transcoder"),
    ("sae_topk", "autoencoder"),
]
METHODS = [method for _, method in CASES]


def layer_of(method: Method) -> SparseLayer:
    return build_layer(
        LayerConfig(
            method=method,
            input_width=24,
            hidden_width=40,
            output_width=24,
            num_experts=96,
            k=6,
            activation="gelu",
            encoder="mlp",
        )
    )


def parameters_of(golden: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    names = {"gate.bias": "b_enc", "direction_NO": "W_dec", "skip.weight": "W_skip.weight"}
    # The autoencoder's one bias is taken from its input and added to its output; the transcoders have another there.
    names["output_bias"] = "b_dec_out" if "param.b_dec_out" in golden else "b_dec"
    actual = {ours: golden[f"{prefix}.{theirs}"] for ours, theirs in names.items() if f"{prefix}.{theirs}" in golden}
    return actual | {"gate.weight": golden[f"{prefix}.W_enc"].T}


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).detach().norm() / expected.norm())


@pytest.mark.parametrize(("case", "method"), CASES)
def test_matches_the_papers_code(case: str, method: Method) -> None:
    golden = load_file(REFERENCE / f"{case}.safetensors")
    layer = layer_of(method)
    layer.load_state_dict(parameters_of(golden, "param"))
    output = layer(golden["in.x"])
    assert relative_error(output.output_TO, golden["out.y"]) < 1e-5
    activations_TN = torch.zeros(32, 96).scatter(1, output.routing.indices_TK, output.routing.activations_TK)
    assert relative_error(activations_TN, golden["out.acts"]) < 1e-5
    target = golden["in.target"]
    loss = ((output.output_TO - target).square() / target.norm(dim=1, keepdim=True)).mean()
    assert relative_error(loss, golden["out.ref_mse"]) < 1e-5
    loss.backward()
    for name, gradient in parameters_of(golden, "grad_ref_mse").items():
        actual = layer.get_parameter(name).grad
        assert actual is not None
        assert relative_error(actual, gradient) < 1e-5, name


@pytest.mark.parametrize("method", METHODS)
def test_contributions_add_up(method: Method) -> None:
    layer = layer_of(method)
    torch.nn.init.normal_(layer.get_parameter("direction_NO"))
    x_TI = torch.randn(7, 24)
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    rest_TO = layer.decode(dense_TM, routing._replace(activations_TK=torch.zeros_like(routing.activations_TK)))
    torch.testing.assert_close(layer.decode(dense_TM, routing) - rest_TO, layer.contribution(dense_TM, routing))
    one = routing._replace(activations_TK=routing.activations_TK * torch.eye(6)[2])
    norms_TK = layer.contribution_norms(dense_TM, routing)
    torch.testing.assert_close(norms_TK[:, 2], layer.contribution(dense_TM, one).norm(dim=1))
