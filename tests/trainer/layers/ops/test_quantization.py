"""Layers in 8 bits load like others, with small errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import read_weights
from mxd.trainer.layers.ops.quantization import SCALE, dequantized, quantize_file, quantize_rows
from tests.helpers.layers import random_layer


def test_errors_are_at_most_half_a_step() -> None:
    weight_RC = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 20)[:, None]
    weight_RC[3] = 0
    quantized_RC, scale_R = quantize_rows(weight_RC)
    assert ((quantized_RC * scale_R[:, None] - weight_RC).abs() <= 0.5001 * scale_R[:, None]).all()


def test_a_layer_in_8_bits_loads(tmp_path: Path) -> None:
    layer = random_layer(widths=(96, 128, 80), num_experts=200)
    layer.save(tmp_path)
    quantize_file(tmp_path / "layer.safetensors", tmp_path / "small.safetensors")
    assert (tmp_path / "small.safetensors").stat().st_size < 0.5 * (tmp_path / "layer.safetensors").stat().st_size
    loaded = read_weights(tmp_path / "small.safetensors", layer)
    for name, value in layer.state_dict().items():
        assert loaded[name].dtype == value.dtype
        torch.testing.assert_close(loaded[name], value, atol=value.abs().max().item() / 250, rtol=0)


def test_wrong_scales_are_rejected(tmp_path: Path) -> None:
    layer = random_layer(widths=(96, 128, 80), num_experts=200)
    layer.save(tmp_path)
    path = tmp_path / "layer.safetensors"
    quantize_file(path, path)
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(SCALE))
    save_file(tensors | {name: tensors[name][:-1].clone()}, path)
    with pytest.raises(UserError, match="do not match the layer config"):
        read_weights(path, layer)


def test_other_tensors_are_unchanged() -> None:
    tensors = {"a": torch.randn(2, 3), "b": torch.zeros(2, dtype=torch.int8)}
    assert dequantized(tensors) == tensors
