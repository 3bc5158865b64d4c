"""Weights in 8 bits, for layers that are shipped: int8 with one scale per row.

A file stores a matrix ``name`` as int8, and its scales as ``name.scale``, float32, one per row. Vectors are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

SCALE = ".scale"
LARGEST = 127


def quantize_rows(weight_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to int8, and return it with its scales [R]: row = int8 row times scale."""
    scale_R = weight_RC.float().abs().amax(dim=1).div(LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
    return weight_RC.float().div(scale_R[:, None]).round().to(torch.int8), scale_R


def dequantized(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace every int8 matrix that has scales by its float32 values. Other tensors are returned as they are."""
    values = dict(tensors)
    for name, tensor in tensors.items():
        scale_R = tensors.get(name + SCALE)
        if tensor.dtype == torch.int8 and scale_R is not None and scale_R.shape == tensor.shape[:1]:
            values[name] = tensor.float() * scale_R.float().view(-1, *[1] * (tensor.ndim - 1))
            del values[name + SCALE]
    return values


def quantize_file(source: Path, target: Path) -> None:
    """Write the weights of a safetensors file in 8 bits.

    Raises:
        OSError: a file cannot be read or written.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in load_file(source).items():
        tensors[name] = value
        if value.ndim == 2 and value.is_floating_point():
            tensors[name], tensors[name + SCALE] = quantize_rows(value)
    save_file(tensors, target)
