"""Saving and loading of layers, and errors for damaged files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.layers.files import CONFIG_FILE, WEIGHTS_FILE
from mxd.trainer.layers.registry import build_layer, load_layer
from tests.helpers.layers import random_layer, random_layer_of


def test_a_loaded_layer_equals_the_saved_one(tmp_path: Path) -> None:
    layer = random_layer(encoder="mlp", activation="gelu")
    layer.save(tmp_path)
    again = load_layer(tmp_path)
    assert again.config == layer.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in layer.state_dict().items())
    x = torch.randn(3, 12)
    assert torch.equal(layer(x).output_TO, again(x).output_TO)


def test_no_layer_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="Train one with mxd train"):
        load_layer(tmp_path)


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


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    random_layer(num_experts=33).save(tmp_path)
    config = (tmp_path / CONFIG_FILE).read_text().replace("33", "34")
    (tmp_path / CONFIG_FILE).write_text(config)
    with pytest.raises(UserError, match=r"gate\.bias"):
        load_layer(tmp_path)


@pytest.mark.parametrize("content", ["", "[1]", '{"k": 0}', "\x00"])
def test_damaged_config_is_reported(tmp_path: Path, content: str) -> None:
    random_layer().save(tmp_path)
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(UserError, match="Invalid layer config"):
        load_layer(tmp_path)


def test_k_larger_than_n_is_rejected() -> None:
    config = LayerConfig(
        input_width=4, hidden_width=4, output_width=4, num_experts=3, k=4, activation="relu", encoder="mlp"
    )
    with pytest.raises(UserError, match="k=4 exceeds the number of experts, 3"):
        build_layer(config)


@pytest.mark.parametrize("method", ["mxd", "transcoder"])
def test_weights_that_move_in_inference_mode_still_have_gradients(method: Method) -> None:
    """As on an accelerator, where the first request that needs a layer moves it."""
    layer = random_layer_of(method)
    with torch.inference_mode():
        layer.to(torch.float64)
    layer(torch.ones(3, layer.config.input_width, dtype=torch.float64)).output_TO.sum().backward()
    assert all(weight.grad is not None and weight.dtype == torch.float64 for weight in layer.parameters())
