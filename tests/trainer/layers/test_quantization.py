"""Quantised layers load like others, with small errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxd.trainer.config.layer import stored_bits
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import read_weights
from mxd.trainer.layers.tensor_files import GROUP, PACKED, SCALE, dequantize, quantize, quantize_file
from tests.helpers.layers import random_layer


def test_errors_are_at_most_half_a_step() -> None:
    weight_RC = torch.randn(20, 192, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 20)[:, None]
    weight_RC[3] = 0
    packed_RP, scale_RG = quantize(weight_RC)
    error_RC = (dequantize(packed_RP, scale_RG) - weight_RC).abs()
    # bfloat16 rounds a scale by up to 2^-8, and the largest weight is 16 times that.
    assert (error_RC <= (0.5 + 16 / 256) * scale_RG.float().repeat_interleave(GROUP, dim=1)).all()
    assert packed_RP.nbytes + scale_RG.nbytes == weight_RC.numel() * 5.25 / 8


def test_no_weight_becomes_zero() -> None:
    """Otherwise small scalings would lower the rank of the experts."""
    weight_RC = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-5, 0, 64)
    assert dequantize(*quantize(weight_RC)).count_nonzero() == weight_RC.numel()


@pytest.mark.parametrize("suffix", [PACKED, SCALE])
def test_wrong_shapes_are_rejected(tmp_path: Path, suffix: str) -> None:
    layer = random_layer(widths=(64, 128, 64), num_experts=200)
    layer.save(tmp_path)
    path = tmp_path / "layer.safetensors"
    quantize_file(path, path)
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(suffix))
    save_file(tensors | {name: tensors[name][:-1].clone()}, path)
    with pytest.raises(UserError, match="do not match the layer config"):
        read_weights(path, layer)


def test_a_quantised_layer_loads(tmp_path: Path) -> None:
    layer = random_layer(widths=(64, 128, 64), num_experts=200)
    layer.save(tmp_path)
    quantize_file(tmp_path / "layer.safetensors", tmp_path / "small.safetensors")
    assert (tmp_path / "small.safetensors").stat().st_size < 0.25 * (tmp_path / "layer.safetensors").stat().st_size
    loaded = read_weights(tmp_path / "small.safetensors", layer)
    for name, value in layer.state_dict().items():
        assert loaded[name].dtype == value.dtype
        torch.testing.assert_close(loaded[name], value, atol=value.abs().max().item() / 29, rtol=0)


def test_a_file_shows_the_bits_of_its_weights(tmp_path: Path) -> None:
    layer = random_layer(widths=(64, 128, 64), num_experts=200)
    layer.save(tmp_path)
    path = tmp_path / "layer.safetensors"
    assert stored_bits(path) is None
    quantize_file(path, path)
    assert stored_bits(path) == 5
    assert stored_bits(tmp_path / "missing") is None
