"""Rounds the weights of layers that are shipped to 5 bits, which ``mxd.trainer.layers.tensor_files`` reads.

Shapes: R rows, C columns, G groups of W = 64 columns, P packed bytes per row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mxd.trainer.layers.tensor_files import GROUP, LEVELS, PACKED, SCALE


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


def quantize_file(source: Path, target: Path) -> None:
    """Write the weights of a safetensors file in 5 bits. Raises OSError if a file cannot be read or written."""
    tensors: dict[str, Tensor] = {}
    for name, value in load_file(source).items():
        if value.ndim == 2 and value.is_floating_point() and value.shape[1] % GROUP == 0:
            tensors[name + PACKED], tensors[name + SCALE] = quantize(value)
        else:
            tensors[name] = value
    save_file(tensors, target)
