"""One set of experts that writes several layers: against explicit experts, plain MxDs and whole forward passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.layers import random_layer
from tests.runs import World
from trainer.config import LayerConfig
from trainer.edits import EditedBlock, EditPlan, LayerEdits
from trainer.layers.cross_layer import GluCrossLayer, MlpCrossLayer
from trainer.layers.matching import Widths, matched_num_experts
from trainer.layers.mxd import MxD
from trainer.layers.registry import build_layer
from trainer.metrics import error_of, normalised_mse
from trainer.train import train

SPAN = 2


def cross_layer(encoder: Any = "glu", span: int = SPAN, seed: int = 0, widths: tuple[int, int] = (12, 5)) -> MxD:
    """From 12 values to ``span`` times 5, every parameter random."""
    config = LayerConfig(
        method="cross-layer-mxd",
        span=span,
        input_width=widths[0],
        hidden_width=20,
        output_width=span * widths[1],
        num_experts=33,
        k=5,
        activation="silu",
        encoder=encoder,
    )
    layer = build_layer(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    assert isinstance(layer, MxD)
    return layer


def dense_reference(layer: MxD, x_TI: Tensor) -> list[Tensor]:
    """Every expert's matrix for every layer that is written, all of them at every token."""
    scores_TN = torch.relu(x_TI @ layer.get_parameter("gate.weight").T + layer.get_parameter("gate.bias"))
    kept_TN = scores_TN * (scores_TN >= scores_TN.topk(layer.config.k, dim=1).values[:, -1:])
    width = layer.config.output_width // layer.span
    answers = []
    for part in range(layer.span):
        here = slice(part * width, (part + 1) * width)
        matrices_NHO = layer.decoder.weight[here].T.unsqueeze(0) * layer.scaling_NO[:, here].unsqueeze(1)
        answers.append(torch.einsum("tn,th,nho->to", kept_TN, layer.encode(x_TI), matrices_NHO))
    biases = layer.output_bias.split(width)
    return [answer + bias for answer, bias in zip(answers, biases, strict=True)]


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("span", [1, 2, 3])
def test_it_equals_its_explicit_experts(encoder: str, span: int) -> None:
    layer, x_TI = cross_layer(encoder, span), torch.randn(7, 12)
    assert isinstance(layer, MlpCrossLayer if encoder == "mlp" else GluCrossLayer)
    found = layer.parts(layer(x_TI).output_TO)
    assert len(found) == span
    for part, wanted in zip(found, dense_reference(layer, x_TI), strict=True):
        torch.testing.assert_close(part, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_its_gradients_are_those_of_the_explicit_experts(encoder: str) -> None:
    layer, x_TI, target_TO = cross_layer(encoder), torch.randn(9, 12), torch.randn(9, 10)
    error_of(layer, layer(x_TI).output_TO, target_TO).backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters()}
    layer.zero_grad()
    answers = dense_reference(layer, x_TI)
    errors = [normalised_mse(*pair) for pair in zip(answers, target_TO.chunk(SPAN, dim=1), strict=True)]
    torch.stack(errors).mean().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-4, rtol=1e-4)


def test_each_layer_counts_alike_however_long_its_vectors_are() -> None:
    layer = cross_layer()
    output_TO, target_TO = torch.randn(6, 10), torch.randn(6, 10)
    scales_O = torch.tensor([1.0] * 5 + [1000.0] * 5)
    assert error_of(layer, output_TO * scales_O, target_TO * scales_O).item() == pytest.approx(
        error_of(layer, output_TO, target_TO).item(), rel=1e-5
    )
    plain = random_layer()
    assert error_of(plain, output_TO, target_TO) == normalised_mse(output_TO, target_TO)


def test_with_one_layer_it_is_an_mxd_bit_for_bit(world: World) -> None:
    train(world.config("plain"), world.data, world.store, world.language_model)
    train(world.config("one", method="cross-layer-mxd", span=1), world.data, world.store, world.language_model)
    plain, one = (load_file(world.data / "runs" / name / "layer.safetensors") for name in ("plain", "one"))
    assert plain.keys() == one.keys()
    assert all(torch.equal(plain[name], one[name]) for name in plain)


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
@pytest.mark.parametrize("span", [1, 3])
def test_by_default_it_has_the_parameters_of_as_many_transcoders(encoder: Any, span: int) -> None:
    widths = Widths(inputs=24, hidden=40, outputs=24, rank=6, span=span)
    count = matched_num_experts("cross-layer-mxd", widths, encoder)
    config = LayerConfig(
        method="cross-layer-mxd",
        span=span,
        input_width=24,
        hidden_width=40,
        output_width=24 * span,
        num_experts=count,
        k=4,
        activation="silu",
        encoder=encoder,
    )
    wanted = span * (32 * 24 * (24 + 1 + 24) + 24)
    assert 0 <= wanted - build_layer(config).num_parameters <= 24 + 1 + span * 24


def test_rows_of_a_layer_and_of_one_that_reaches_it_do_not_touch_each_other() -> None:
    cross, plain = cross_layer(widths=(12, 12)), random_layer(widths=(12, 20, 12))
    nothing, x_BTI, later_BTI = EditPlan((), {}), torch.randn(3, 2, 12), torch.randn(3, 2, 12)
    first, second = EditedBlock(3), EditedBlock(3)
    first.add(0, LayerEdits(cross, "replace", nothing), [True, True])
    second.add(2, LayerEdits(plain, "replace", nothing), [True, True])
    second.follow(first, 1)
    first(x_BTI, lambda: torch.zeros(3, 2, 12))
    found = second(later_BTI, lambda: torch.full((3, 2, 12), 7.0))
    torch.testing.assert_close(found[0], cross.parts(cross(x_BTI[0]).output_TO)[1])
    torch.testing.assert_close(found[1], torch.full((2, 12), 7.0))
    torch.testing.assert_close(found[2], plain(later_BTI[2]).output_TO)
