"""Weights in 5 bits, for layers that are shipped: one scale per 64 weights of a row.

A file stores a matrix ``name`` as ``name.packed``, uint8 [R, 5C/8], and ``name.scale``, bfloat16 [R, C/64]. A weight w
is the code floor(w / scale) + 16, read as (code - 15.5) scale: never as zero, which would lower the rank of an expert.
A packed row holds the lower four bits of its codes, two codes per byte, then their highest bits. Vectors, and matrices
whose width is no multiple of 64, are unchanged.

Shapes: R rows, C columns, G groups of W = 64 columns, P packed bytes per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

PACKED, SCALE = ".packed", ".scale"
GROUP = 64
LEVELS = 16
"""Number of codes for weights of one sign."""


def quantize(weight_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to 5 bits, and return it packed [R, P], with its scales [R, G]."""
    groups_RGW = weight_RC.float().unflatten(1, (-1, GROUP))
    scale_RG = groups_RGW.abs().amax(dim=2).div(LEVELS).clamp_min(torch.finfo(torch.float32).tiny).bfloat16()
    # The largest weight of a group would get code 32.
    codes_RGW = groups_RGW.div(scale_RG[:, :, None]).floor().add(LEVELS).clamp(0, 2 * LEVELS - 1)
    codes_RC = codes_RGW.flatten(1).to(torch.uint8)
    low_RC, high_RC = codes_RC % LEVELS, codes_RC // LEVELS
    high_RP = torch.from_numpy(np.packbits(high_RC.numpy(), axis=1))
    return torch.cat((low_RC[:, ::2] + LEVELS * low_RC[:, 1::2], high_RP), dim=1), scale_RG


def dequantize(packed_RP: Tensor, scale_RG: Tensor) -> Tensor:
    """Matrix [R, C] of a packed one, in float32."""
    columns = scale_RG.shape[1] * GROUP
    low_RP, high_RP = packed_RP.split((columns // 2, columns // 8), dim=1)
    high_RC = torch.from_numpy(np.unpackbits(high_RP.numpy(), axis=1))
    codes_RC = torch.stack((low_RP % LEVELS, low_RP // LEVELS), dim=2).flatten(1).add_(high_RC, alpha=LEVELS)
    weights_RC: Tensor = codes_RC.float().sub_(LEVELS - 0.5)
    return weights_RC.mul_(scale_RG.float().repeat_interleave(GROUP, dim=1))


def dequantized(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace every quantised matrix by its float32 values. Other tensors are returned as they are."""
    values = dict(tensors)
    for packed_name in tensors:
        name = packed_name.removesuffix(PACKED)
        packed_RP, scale_RG = tensors[packed_name], tensors.get(name + SCALE)
        if name == packed_name or scale_RG is None:
            continue
        # A file may hold anything.
        if (packed_RP.dtype, packed_RP.ndim, scale_RG.ndim, scale_RG.is_floating_point()) == (torch.uint8, 2, 2, True):
            rows, groups = scale_RG.shape
            if packed_RP.shape == (rows, 5 * GROUP * groups // 8):
                values[name] = dequantize(values.pop(packed_name), values.pop(name + SCALE))
    return values


def quantize_file(source: Path, target: Path) -> None:
    """Write the weights of a safetensors file in 5 bits.

    Raises:
        OSError: a file cannot be read or written.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in load_file(source).items():
        if value.ndim == 2 and value.is_floating_point() and value.shape[1] % GROUP == 0:
            tensors[name + PACKED], tensors[name + SCALE] = quantize(value)
        else:
            tensors[name] = value
    save_file(tensors, target)
