"""Saving and loading of layers, and errors for damaged files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn import functional as F

from mxd.trainer.config import LayerConfig, Method, TrainConfig
from mxd.trainer.config.layer import CONFIG_FILE, WEIGHTS_FILE
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import Gate
from mxd.trainer.layers.registry import load_layer
from tests.helpers.layers import random_layer, random_layer_of


def test_a_loaded_layer_equals_the_saved_one(tmp_path: Path) -> None:
    layer = random_layer(encoder="mlp", activation="gelu")
    layer.save(tmp_path)
    again = load_layer(tmp_path)
    assert again.config == layer.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in layer.state_dict().items())
    x = torch.randn(3, 12)
    assert torch.equal(layer(x).output_TO, again(x).output_TO)


@pytest.mark.parametrize("damage", ["truncated", "pickle", "missing"])
def test_damaged_weights_are_reported(tmp_path: Path, damage: str) -> None:
    random_layer().save(tmp_path)
    weights = tmp_path / WEIGHTS_FILE
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:200])
    elif damage == "pickle":
        weights.write_bytes(pickle.dumps({"gate.weight": 1}))
    else:
        weights.unlink()
    with pytest.raises(UserError, match="Cannot read"):
        load_layer(tmp_path)


@pytest.mark.parametrize("content", ["", "[1]", '{"k": 0}', "\x00"])
def test_damaged_config_is_reported(tmp_path: Path, content: str) -> None:
    random_layer().save(tmp_path)
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(UserError, match="Invalid layer config"):
        load_layer(tmp_path)


@pytest.mark.parametrize("method", ["mxd", "transcoder"])
def test_weights_that_move_in_inference_mode_still_have_gradients(method: Method) -> None:
    """As on an accelerator, where the first request that needs a layer moves it."""
    layer = random_layer_of(method)
    with torch.inference_mode():
        layer.to(torch.float64)
    layer(torch.ones(3, layer.config.input_width, dtype=torch.float64)).output_TO.sum().backward()
    assert all(weight.grad is not None and weight.dtype == torch.float64 for weight in layer.parameters())


@pytest.mark.parametrize("method", ["mxd", "transcoder", "autoencoder", "molt"])
@pytest.mark.parametrize("k", [2, 9, 50])
def test_a_pass_with_another_number_of_experts_is_that_of_a_layer_with_this_k(method: Method, k: int) -> None:
    """As in random-K training, which also draws numbers above K."""
    layer = random_layer_of(method)
    expected = random_layer_of(method, k=min(k, layer.config.num_experts))
    x_TI = torch.randn(4, layer.config.input_width, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x_TI, k).output_TO, expected(x_TI).output_TO)


WIDTH = 9


@given(tokens=st.integers(1, 30), num_experts=st.integers(1, 61), k=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_selection_and_gradients_match_dense_scores(tokens: int, num_experts: int, k: int, seed: int) -> None:
    generator, k = torch.Generator().manual_seed(seed), min(k, num_experts)
    gate = Gate(WIDTH, num_experts).double()
    for parameter in gate.parameters():
        parameter.data.normal_(generator=generator)
    x_TI = torch.randn(tokens, WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    upstream_TN = torch.randn(tokens, num_experts, dtype=torch.float64, generator=generator)
    activations_TK, ids_TK = gate.choose(x_TI, k)
    assert bool((activations_TK.diff(dim=1) <= 0).all())
    scores_TN = F.linear(x_TI, gate.weight, gate.bias)
    kept_TN = scores_TN.detach() >= scores_TN.detach().topk(k, dim=1).values[:, -1:]
    expected_TN = scores_TN.relu() * kept_TN
    actual_TN = torch.zeros_like(expected_TN).scatter_add(1, ids_TK, activations_TK)
    torch.testing.assert_close(actual_TN, expected_TN, rtol=1e-9, atol=1e-9)
    actual, expected = (
        torch.autograd.grad((values_TN * upstream_TN).sum(), [x_TI, *gate.parameters()])
        for values_TN in (actual_TN, expected_TN)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [LayerConfig, TrainConfig])
def test_files_of_earlier_versions_are_read_if_their_gate_is_flat(kind: type[LayerConfig | TrainConfig]) -> None:
    values: dict[str, Any] = random_layer().config.model_dump()
    if kind is TrainConfig:
        values = {"name": "x", "language_model": "y", "layer": 0, "text": {"dataset": "z"}, "tokens": 1}
    read = kind.model_validate({**values, "gate": {"gate": "flat", "groups": None, "top_groups": None}})
    assert read == kind.model_validate(values)
    with pytest.raises(ValidationError, match="gate"):
        kind.model_validate({**values, "gate": {"gate": "two-level", "groups": 8, "top_groups": 2}})
